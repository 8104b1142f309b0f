"""Every file of `schemas/` from the messages, the same bytes each time. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

import yaml

from takeback.messages.doors import DOORS
from takeback.messages.events import EVENT_DATA, Event
from takeback.schemas.asyncapi import asyncapi
from takeback.schemas.models import body_name, schema_of
from takeback.schemas.openapi import openapi
from takeback.schemas.versions import VERSIONS
from takeback.subjects import TYPE_PREFIX

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_BASE = "https://takeback.github.io/schemas/"

Direction = Literal["in", "out"]
"""Who writes such a message: `in` a client, `out` Takeback."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The JSON Schema *name* (its file without `.json`), and who writes what it describes."""

    name: str
    document: dict[str, Any]
    directions: frozenset[Direction]


@cache
def schemas() -> tuple[Schema, ...]:
    """A JSON Schema for each event type and for each body of an HTTP door."""
    events = [Schema(f"events/{name}", _event(name), frozenset({"out"})) for name in sorted(EVENT_DATA)]
    return (*events, *_bodies())


@cache
def documents() -> Mapping[str, bytes]:
    """The content of each file, by its path in `schemas/`."""
    files = {f"{schema.name}.json": _json(schema.document) for schema in schemas()}
    files["asyncapi.yaml"] = _yaml(asyncapi())
    files["openapi.yaml"] = _yaml(openapi())
    return MappingProxyType(files)


def _bodies() -> list[Schema]:
    found: dict[str, tuple[Any, set[Direction]]] = {}
    for door in DOORS:
        if door.request is not None:
            found.setdefault(body_name(door.request), (door.request, set()))[1].add("in")
        for model in door.answers.values():
            if model is not None:
                found.setdefault(body_name(model), (model, set()))[1].add("out")
    return [
        Schema(f"http/{name}", _framed(f"http/{name}", schema_of(model)), frozenset(directions))
        for name, (model, directions) in sorted(found.items())
    ]


def _event(short_type: str) -> dict[str, Any]:
    """The CloudEvent of *short_type*: the envelope, with the type's own data."""
    envelope = schema_of(Event)
    data = schema_of(EVENT_DATA[short_type])
    inner = data.pop("$defs", {})
    name = EVENT_DATA[short_type].__name__
    envelope["$defs"] = envelope.get("$defs", {}) | inner | {name: data}
    envelope["properties"] |= {"data": {"$ref": f"#/$defs/{name}"}, "type": {"const": TYPE_PREFIX + short_type}}
    envelope["required"] = sorted({*envelope["required"], "specversion"})
    envelope["description"] = data.get("description", "")
    return _framed(f"events/{short_type}", envelope)


def _framed(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    version = VERSIONS.get(name, 1)
    return {"$schema": DIALECT, "$id": f"{_BASE}{name}/{version}", "version": version, **schema}


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def _yaml(document: dict[str, Any]) -> bytes:
    text: str = yaml.safe_dump(document, sort_keys=False, width=110, allow_unicode=True)
    return text.encode()
