"""What an MCP server offers beside its tools: resources and prompts. Pure.

The protocol itself defines ``resources/read`` and ``prompts/get`` as reads, so that each is an operation that no server need
declare: pinned, ruled by policy and journaled like a declared read (J12). Lists and completions say what there is to read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import mcp_types as types
from pydantic import BaseModel, ValidationError

from recorder.toolport.hearing import Kind
from recorder.toolport.port import Description, NoAnswer, Operation, Outcome, ToolRefused, pin_of
from takeback.extension import EXTENSION, read_definition

Json = dict[str, Any]
READ_RESOURCE: Final = "resources/read"
GET_PROMPT: Final = "prompts/get"
COMPLETE: Final = "completion/complete"
READS: Final[Mapping[Kind, str]] = {"resources": READ_RESOURCE, "prompts": GET_PROMPT}
"""The read of each capability, under MCP's own name for it. A tool that is called so keeps its name, and hides the read."""

_REQUESTS: Final[Mapping[str, Any]] = {
    READ_RESOURCE: types.ReadResourceRequest,
    GET_PROMPT: types.GetPromptRequest,
    COMPLETE: types.CompleteRequest,
    "resources/list": types.ListResourcesRequest,
    "resources/templates/list": types.ListResourceTemplatesRequest,
    "prompts/list": types.ListPromptsRequest,
}
_CONTENT: Final = {READ_RESOURCE: "contents", GET_PROMPT: "messages"}
"""The list without which a result is none."""


def offered(capabilities: BaseModel) -> Json:
    """The part of a server's *capabilities* that goes through the door beside its tools, as MCP writes it."""
    said = capabilities.model_dump(mode="json", by_alias=True, exclude_none=True)
    told = {kind: {"listChanged": True} if said[kind].get("listChanged") else {} for kind in READS if kind in said}
    return only(told | ({"completions": {}} if "completions" in said else {}), READS.values())


def beside(offers: Json, tools: Iterable[str]) -> Json:
    """What of *offers* is there beside *tools* of these names."""
    return only(offers, set(READS.values()).difference(tools))


def only(offers: Json, reads: Collection[str]) -> Json:
    """What is left of *offers* with these *reads* alone. Completions are of what can be read, and go with the last of it."""
    left = {kind: offers[kind] for kind, name in READS.items() if kind in offers and name in reads}
    return left | ({"completions": {}} if left and "completions" in offers else {})


def read_names(offers: Mapping[str, Any]) -> list[str]:
    """The reads of a server that *offers* that beside its tools."""
    return [name for kind, name in READS.items() if kind in offers]


def reads(offers: Json) -> list[Operation]:
    """The operations of a server that *offers* that beside its tools."""
    return [_OPERATIONS[name] for name in read_names(offers)]


def tools_of(described: Description) -> dict[str, Json]:
    """The input schemas of a server's operations that are tools: a manifest is about these."""
    others = read_names(described.offers)
    return {one.name: one.input_schema for one in described.operations if one.name not in others}


def request_of(method: str, params: Json) -> Any:
    """The request; raises `ToolRefused` for *params* that MCP does not have for it."""
    try:
        # By the names on the wire alone: what a model calls `meta` is nothing that a client may say there.
        return _REQUESTS[method].model_validate({"method": method, "params": params}, by_alias=True, by_name=False)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc'][1:]))}: {item['msg']}" for item in error.errors()[:5])
        raise ToolRefused(f"{method} does not take this: {wrong}. Nothing was sent") from error


def outcome(method: str, answer: Json) -> Outcome:
    """The outcome in the result of a read; raises `NoAnswer` for what is none."""
    if not isinstance(answer.get(_CONTENT[method]), list):
        raise NoAnswer(f"The tool server answered {method} with something that is no result of it.")
    return Outcome(answer, None, False)


def _operation(method: str, description: str, schema: Json, declared: Json) -> Operation:
    definition: Json = {
        "name": method,
        "description": description,
        "inputSchema": {"type": "object", **schema, "additionalProperties": False},
        "_meta": {EXTENSION: {"readOnly": True, "undo": {"kind": "none"}, **declared}},
    }
    return Operation(
        name=method,
        description=description,
        input_schema=definition["inputSchema"],
        declaration=read_definition(definition["_meta"]),
        definition=definition,
        pin=pin_of(definition),
    )


_OPERATIONS: Final = {
    operation.name: operation
    for operation in (
        _operation(
            READ_RESOURCE,
            "Reads one of the server's resources.",
            {"properties": {"uri": {"type": "string"}}, "required": ["uri"]},
            {"resource": "{+uri}"},
        ),
        _operation(
            GET_PROMPT,
            "Fills in one of the server's prompts.",
            {
                "properties": {
                    "name": {"type": "string"},
                    "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
                },
                "required": ["name"],
            },
            {},
        ),
    )
}
