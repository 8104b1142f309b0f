"""Names of records lead back to their keys."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from recorder.manifest import uris

keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@given(keys, keys)
def test_a_name_leads_back_to_its_keys(first: str, second: str) -> None:
    """J10."""
    template = "x://{a}/y/{b}"
    assert uris.match(template, uris.expand(template, {"a": first, "b": second})) == {"a": first, "b": second}


@given(keys)
def test_a_path_keeps_its_slashes_and_leads_back(path: str) -> None:
    name = uris.expand("file://{+path}", {"path": path})
    assert uris.match("file://{+path}", name) == {"path": path}
    assert name.count("/") == path.count("/") + 2


@given(keys, keys)
def test_different_keys_have_different_names(first: str, second: str) -> None:
    assume(first != second)
    assert uris.expand("x://{a}", {"a": first}) != uris.expand("x://{a}", {"a": second})


def test_what_cannot_name_records_is_said() -> None:
    assert uris.problem_in("notes://note/{id}") is None
    assert uris.problem_in("no scheme {id}")
    assert uris.problem_in("x://{a}/{a}")
    assert uris.problem_in("x://{a b}")
    assert uris.match("x://{a}", "x://b/c") is None
