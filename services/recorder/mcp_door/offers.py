"""What one server offers beside its tools, asked of it as it is now: lists, templates, completions.

These say what there is to read, and nothing of them is journaled; what is read goes through the one hook (J1, J12).
"""

from __future__ import annotations

from typing import Final

import mcp_types as types

from recorder.mcp_door import shape
from recorder.mcp_door.catalog import Catalog
from recorder.mcp_door.exchange import Exchange, Json
from recorder.resolving import not_open
from recorder.servers import Servers
from recorder.toolport.hearing import Kind
from recorder.toolport.offers import COMPLETE
from recorder.toolport.port import Offering, ServerError, ToolPortError, ToolRefused
from takeback import json
from takeback.auth import Caller
from takeback.errors import Problem

NOT_ARGUMENTS: Final = ("_meta", "requestState", "inputResponses")
"""Members of a request's params that say something of the request, and nothing of what is wanted."""
_SECONDS: Final = 10.0
_LISTS: Final[dict[str, Kind]] = {
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "prompts/list": "prompts",
}
_COMPLETED: Final[dict[str, Kind]] = {"ref/resource": "resources", "ref/prompt": "prompts"}


def kind_of(message: Exchange) -> Kind | None:
    """Of what a request lists or completes something; None for any other request."""
    if message.method == COMPLETE:
        ref = message.params.get("ref")
        completed = ref.get("type") if isinstance(ref, dict) else None
        return _COMPLETED.get(completed, "prompts") if isinstance(completed, str) else "prompts"
    return _LISTS.get(message.method)


class Offers:
    """Asks the servers of a campaign."""

    def __init__(self, catalog: Catalog, servers: Servers) -> None:
        self._catalog = catalog
        self._servers = servers

    async def ask(self, run: str, server: str | None, caller: Caller, message: Exchange) -> Json:
        """The server's answer as it came; raises `Rejected` with its error, or with why there is none.

        What the caller may not read is not there for it.
        """
        found, offered = await self._catalog.offers(run, server, caller)
        if kind_of(message) not in offered or (message.method == COMPLETE and "completions" not in offered):
            raise message.rejected(types.METHOD_NOT_FOUND, "Method not found", message.method)
        params = {name: value for name, value in message.params.items() if name not in NOT_ARGUMENTS}
        try:
            if found.status != "open":
                raise not_open(found.status)
            port = await self._servers.port(found.campaign, server or "", found.campaign_version)
            if not isinstance(port, Offering):
                raise message.rejected(types.METHOD_NOT_FOUND, "Method not found", message.method)
            answer = _passed_on(message, await port.ask(message.method, params, deadline=_SECONDS))
        except ServerError as error:
            raise message.rejected_as(_passed_on(message, error.answer)) from error
        except ToolRefused as error:
            raise message.rejected(types.INVALID_PARAMS, f"{error}.") from error
        except ToolPortError as error:
            raise message.rejected(types.INTERNAL_ERROR, f"{error}.") from error
        except Problem as problem:
            raise message.rejected(types.INTERNAL_ERROR, problem.detail) from problem
        return answer if message.method == COMPLETE else shape.listing(answer)


def _passed_on(message: Exchange, answer: Json) -> Json:
    """*answer*; raises `Rejected` for one that is more than JSON, or than a read's may be."""
    try:
        json.check(answer)
    except Problem as problem:
        why = problem.detail.removesuffix(" Nothing was changed.")
        raise message.rejected(
            types.INTERNAL_ERROR, f"The tool server's answer cannot be passed on. {why}"
        ) from problem
    return answer
