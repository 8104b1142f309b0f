"""What names a tool server says nothing that would have no effect."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from takeback.messages.campaign import ServerRequest

SERVER: TypeAdapter[Any] = TypeAdapter(ServerRequest)
BY_URL = {"transport": "mcp", "url": "https://tools.example.org/mcp"}
BY_COMMAND = {"transport": "mcp", "command": "tools"}


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({**BY_COMMAND, "headers": {"Authorization": "env:TAKEBACK_SECRET_X"}}, "headers go to a url"),
        ({**BY_URL, "args": ["-v"]}, "args and env are a command's"),
        ({**BY_URL, "env": {"TOKEN": "env:TAKEBACK_SECRET_X"}}, "args and env are a command's"),
        ({**BY_URL, **BY_COMMAND}, "either a url or a command"),
    ],
)
def test_a_member_that_the_other_way_to_a_server_would_read_is_refused(wanted: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        SERVER.validate_python(wanted)


@pytest.mark.parametrize("more", [{**BY_URL, "headers": {"X": "y"}}, {**BY_COMMAND, "args": ["-v"], "env": {"X": "y"}}])
def test_each_way_takes_its_own(more: dict[str, Any]) -> None:
    SERVER.validate_python(more)
