"""What an operator switches on is on everywhere, in whichever word."""

import pytest

from recorder.settings import Settings

SERVERS = dict.fromkeys(("TAKEBACK_POSTGRES_URL", "TAKEBACK_NATS_URL", "TAKEBACK_REDIS_URL"), "x")


@pytest.mark.parametrize(
    ("word", "switch"), [("1", "1"), ("true", "1"), ("yes", "1"), ("0", "0"), ("false", "0"), ("", "0")]
)
def test_a_switch_is_read_alike_by_the_recorder_and_its_tool_ports(word: str, switch: str) -> None:
    """J16: neither half of it says yes where the other says no."""
    names = ("TAKEBACK_ALLOW_COMMANDS", "TAKEBACK_HTTP_ALLOW_PRIVATE")
    settings = Settings.of(SERVERS | dict.fromkeys(names, word))
    assert settings.switches() == dict.fromkeys(names, switch)
    assert (settings.allow_commands, settings.http_allow_private) == (switch == "1", switch == "1")
