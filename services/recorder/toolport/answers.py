"""From the JSON of a tool server's answers to the port's values, the same for every transport."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from recorder.toolport.port import Description, NoAnswer, Operation, Outcome, Preview, ToolRefused, pin_of
from takeback.extension import (
    EXTENSION,
    Observation,
    UndoAnswer,
    UndoRequest,
    UndoTemplate,
    read_definition,
    read_effects,
    read_observation,
    read_undo_answer,
)

Json = dict[str, Any]


def description(
    server: Mapping[str, Any],
    extensions: Mapping[str, Any] | None,
    tools: list[Json],
    instructions: str | None = None,
) -> Description:
    """The description in a server's info, its capabilities' extensions and its list of tools.

    A tool with a role is hidden; where a handshake lost the extensions, the role is all that names it.
    """
    declared = [(tool, read_definition(tool.get("_meta"))) for tool in tools]
    capability = (extensions or {}).get(EXTENSION)
    named = capability if isinstance(capability, Mapping) else {}
    roles = {d.role: str(tool.get("name")) for tool, d in declared if d.role is not None}
    special = {role: _name(named.get(f"{role}Tool")) or roles.get(role) for role in ("undo", "observe", "preview")}
    hidden = set(roles.values()) | {name for name in special.values() if name is not None}
    return Description(
        name=str(server.get("name", "")),
        version=str(server.get("version", "")),
        operations=[
            Operation(
                name=str(tool["name"]),
                description=str(tool.get("description") or ""),
                input_schema=schema if isinstance(schema := tool.get("inputSchema"), dict) else {},
                declaration=declaration,
                definition=tool,
                pin=pin_of(tool),
            )
            for tool, declaration in declared
            if tool["name"] not in hidden
        ],
        undo_tool=special["undo"],
        observe_tool=special["observe"],
        preview_tool=special["preview"],
        info=dict(server),
        instructions=instructions,
    )


def outcome(result: Any) -> Outcome:
    """The outcome in an MCP result.

    Raises `NoAnswer` for what is none: the tool ran, and what it did cannot be told from that.
    """
    if not isinstance(result, dict) or not isinstance(result.get("content"), list):
        raise NoAnswer("The tool server answered with something that is no tool result. What it did is not known.")
    meta = result.get("_meta")
    part = meta.get(EXTENSION) if isinstance(meta, dict) else None
    return Outcome(result, part, result.get("isError") is True)


def structured(result: Any, tool: str) -> Any:
    """The structured content that a hidden tool answered.

    Raises `ToolRefused` when it answered an error, with its words.
    """
    answer = outcome(result)
    if answer.is_error:
        texts = [str(part.get("text")) for part in answer.result["content"] if isinstance(part, dict)]
        raise ToolRefused(f"{tool} refused: {' '.join(texts)}")
    return answer.result.get("structuredContent")


def undo_arguments(request: UndoRequest) -> Json:
    """The undo tool's arguments. What is not asked for is left out, for servers that take no null."""
    return {
        name: value
        for name, value in request.wire().items()
        if value is not None or name not in ("ifVersions", "fields")
    }


def undo_answer(raw: Any) -> UndoAnswer:
    """What an undo answered; a reversal that leaves out its own undo has none that is known."""
    return read_undo_answer(raw, UndoTemplate(), datetime.now(UTC))


def observation(raw: Any) -> Observation:
    """What was observed."""
    return read_observation(raw)


def preview(raw: Any) -> Preview:
    """What a dry run found."""
    effects, unresolved = read_effects(raw)
    return Preview(effects, unresolved)


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
