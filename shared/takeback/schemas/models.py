"""From a message's model to its JSON Schema and its name in `schemas/`."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema


def schema_of(model: Any, ref_template: str = "#/$defs/{model}") -> dict[str, Any]:
    """The JSON Schema of *model* as a reader takes it.

    What has a default may be absent there, so that yesterday's message is still valid tomorrow.
    """
    schema = TypeAdapter(model).json_schema(ref_template=ref_template, schema_generator=_Untitled)
    schema.pop("title", None)
    return schema


def body_name(model: Any) -> str:
    """What a body's model is called in `schemas/http/` and in OpenAPI's components."""
    if not isinstance(model, type):
        return "ServerRequest"  # a choice of models has no name of its own, and this is the only one
    return model.__name__.replace("[", "Of").replace("]", "")


class _Untitled(GenerateJsonSchema):
    """pydantic's schemas without a title on every member, which only repeats its name."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False
