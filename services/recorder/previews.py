"""Previews: the tool server's dry run of a call, pinned to who asked and to the record's version (P7).

Nothing is stored: a preview's id is a keyed hash of what it was made of, so any replica can tell whether it still holds.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from typing import Any

from recorder.forwarding import observed
from recorder.journal.vault import CampaignKeys, Vault
from recorder.resolving import Resolver
from recorder.servers import Servers
from recorder.toolport.port import ToolPortError
from takeback import json
from takeback.auth import Caller
from takeback.errors import Problem, unavailable
from takeback.messages.entry import CallRequest, PreviewRequest


def preview_id(keys: CampaignKeys, sub: str, arguments_hash: str, version: str | None) -> str:
    """The id of *sub*'s preview of a call, of a record at *version*."""
    digest = hmac.digest(keys.matching, json.dumps(["preview", sub, arguments_hash, version]), "sha256")
    return "prv_" + urlsafe_b64encode(digest[:24]).decode()


class Previews:
    """Answers previews; forwards nothing that changes anything."""

    def __init__(self, resolver: Resolver, servers: Servers, vault: Vault, deadline: float) -> None:
        self._resolver = resolver
        self._servers = servers
        self._vault = vault
        self._deadline = deadline

    async def preview(self, run: str, caller: Caller, request: PreviewRequest) -> dict[str, Any]:
        """What the call would do, and what would be decided about it; raises `Problem` 422 where there is no dry run."""
        wanted = CallRequest(server=request.server, operation=request.operation, arguments=request.arguments)
        call = await self._resolver.call(run, caller, wanted)
        if not call.operation.can_preview:
            raise Problem(422, "no-preview", f"The tool server {request.server} has no dry run. Nothing was forwarded.")
        port = await self._servers.port(call.campaign, request.server, call.run.campaign_version)
        version = None
        if call.resources.changes is not None and call.operation.can_observe:
            seen = (await observed(call.resources.changes, port, self._deadline)).seen
            version = None if seen is None else seen.version
        try:
            shown = await port.preview(request.operation, request.arguments, deadline=self._deadline)
        except ToolPortError as error:
            raise unavailable("preview-failed", f"The dry run failed: {error}. Nothing was forwarded.") from error
        decision = call.decision()
        return {
            "id": preview_id(await self._vault.keys(call.campaign), caller.sub, call.arguments_hash, version),
            "effect": shown.effects[0].wire() if shown.effects else None,
            "effects": [effect.wire() for effect in shown.effects],
            "version": version,
            "authority": {"sub": caller.sub, "principal": call.principal},
            "decision": decision.verdict,
        }
