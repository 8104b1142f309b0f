"""What stands between the recorder and a tool server is told in whole sentences. Pure."""

from __future__ import annotations

import pytest

from recorder.toolport.port import NotSent, ToolRefused, clause


@pytest.mark.parametrize("said", ["it answered 401", "it answered 401.", "it answered 401...", " it answered 401. "])
def test_what_a_server_said_ends_in_no_full_stop_where_a_sentence_goes_on(said: str) -> None:
    assert clause(said) == "it answered 401"


def test_an_error_goes_on_in_a_longer_sentence_without_a_second_full_stop() -> None:
    error = NotSent("No connection to crm. Nothing was sent.")
    assert f"The dry run failed: {error}. Nothing was forwarded." == (
        "The dry run failed: No connection to crm. Nothing was sent. Nothing was forwarded."
    )
    assert str(ToolRefused("crm refused: it answered 401.")) == "crm refused: it answered 401."
