"""What all wire models share: camelCase names, frozen values, strict requests and lenient readers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints
from pydantic.alias_generators import to_camel

from takeback.visible import unseen

Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Text = Annotated[str, StringConstraints(max_length=2000)]
MOST_NAMED = 100
"""How many ids the address of one question may name."""


def _seen(value: str) -> str:
    if found := unseen(value):
        raise ValueError(
            f"a name is shown to people, and {', '.join(found[:3])} cannot be seen or turns around what is beside it"
        )
    if not value.strip():
        raise ValueError("a name needs something that can be seen")
    return value


ShownName = Annotated[Name, AfterValidator(_seen)]
"""A name that is given now, and that people will tell from others by looking."""


def _utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a time needs its offset, for example 2026-11-30T12:00:00Z")
    return value


Instant = Annotated[datetime, AfterValidator(_utc)]
"""A UTC instant from the database's clock."""


class Message(BaseModel):
    """A value on the wire. Readers ignore members that they do not know, so that an older reader keeps working."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")

    def wire(self) -> dict[str, Any]:
        """The value as its JSON document, camelCase."""
        return self.model_dump(mode="json", by_alias=True)


class Request(Message):
    """What a caller sends: an unknown member is a mistake that the caller hears of."""

    model_config = ConfigDict(extra="forbid")


class Nothing(Request):
    """What a POST takes that needs no body: none, or an empty object."""
