"""The HTTP doors as an OpenAPI 3.1 document. Pure."""

from __future__ import annotations

import re
from typing import Any

from takeback.messages import doors
from takeback.messages.base import Id, Name
from takeback.messages.doors import DOORS, Door
from takeback.schemas.models import body_name, schema_of

_ABOUT = (
    "Takes back what an AI agent already did. Fields are camelCase, times are UTC instants. Every refusal is a problem "
    "(RFC 9457) that says what happened, what was and was not changed, and what to do. What you may not know of answers "
    "404, the same bytes as what does not exist."
)
_TEMPLATE = "#/components/schemas/{model}"
_NAMES = ("sub", "name")
_SAID = {
    101: "The connection becomes a WebSocket.",
    200: "Done.",
    201: "Made.",
    202: "Taken in; it goes on.",
    204: "Done; there is nothing to say.",
    409: "What is asked for does not fit what is there now; the problem says how.",
    502: "The tool answered an error; the problem carries the entry.",
    504: "The outcome is in doubt; the problem carries the entry.",
}


def openapi() -> dict[str, Any]:
    """Every door, with the bodies that it takes and answers."""
    components = _components()
    paths: dict[str, dict[str, Any]] = {}
    for door in DOORS:
        paths.setdefault(door.path, {})[door.method.lower()] = _operation(door)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Takeback", "version": "1", "description": _ABOUT, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": "http://127.0.0.1:8420"}],
        "security": [{"token": []}],
        "tags": [{"name": name} for name in ("recorder", "planner", "notifier")],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
            "responses": {
                "Problem": {
                    "description": "A refusal: what happened, what was not changed, what to do.",
                    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
                }
            },
            "schemas": components,
        },
    }


def _operation(door: Door) -> dict[str, Any]:
    operation: dict[str, Any] = {"tags": [door.service], "summary": door.summary, "operationId": _id(door)}
    if parameters := _parameters(door):
        operation["parameters"] = parameters
    if door.request is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": _ref(door.request)}}
    answers = {str(status): _answer(door, status, model) for status, model in door.answers.items()}
    problems = {str(status): {"$ref": "#/components/responses/Problem"} for status in door.problems}
    operation["responses"] = {**answers, **problems, "default": {"$ref": "#/components/responses/Problem"}}
    return operation


def _parameters(door: Door) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": schema_of(Name if name in _NAMES else Id),
        }
        for name in re.findall(r"{(\w+)}", door.path)
    ]
    found += [
        {"name": name, "in": "query", "description": said, "schema": {"type": "string"}}
        for name, said in (door.query or {}).items()
    ]
    if door.method == "POST":
        found.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "The same key and body again get what the first request made, as it is now, and nothing is"
                " done anew; another body is 422. Kept per caller and path for 7 days.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 255},
            }
        )
    return found


def _answer(door: Door, status: int, model: Any) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": _SAID[status]}
    if model is not None:
        answer["content"] = {door.media: _ref(model)}
    elif door.media != "application/json":
        answer["content"] = {door.media: {"schema": {"type": "string"}}}
    return answer


def _ref(model: Any) -> dict[str, Any]:
    return {"schema": {"$ref": f"#/components/schemas/{body_name(model)}"}}


def _id(door: Door) -> str:
    words = [word for word in re.split(r"\W+", door.path.removeprefix("/v1/")) if word]
    return "-".join([door.method.lower(), *words])


def _components() -> dict[str, Any]:
    models: dict[str, Any] = {"Problem": doors.Problem}
    for door in DOORS:
        for model in (door.request, *door.answers.values()):
            if model is not None:
                models[body_name(model)] = model
    found: dict[str, Any] = {}
    for name, model in models.items():
        schema = schema_of(model, _TEMPLATE)
        found |= schema.pop("$defs", {})
        found[name] = schema
    return dict(sorted(found.items()))
