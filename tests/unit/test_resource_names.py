"""A record's name from a template: the same record the same name, another record another."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takeback.resource_names import Nameless, expand


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_different_ids_never_name_the_same_resource(one: str, other: str) -> None:
    """G1: equal resources mean equal records."""
    try:
        same = expand("crm://acme/deal/{id}", {"id": one}) == expand("crm://acme/deal/{id}", {"id": other})
    except UnicodeEncodeError:  # lone surrogates are refused at the door
        return
    assert same == (one == other)


@pytest.mark.parametrize("value", [None, "", [], {}, 1.5])
def test_a_template_without_a_plain_value_names_nothing(value: Any) -> None:
    for values in ({"id": value}, {}):
        with pytest.raises(Nameless) as nameless:
            expand("crm://acme/deal/{id}", values)
        assert nameless.value.variable == "id"
    assert expand("crm://acme/deal/{id}", {"id": 7}) == "crm://acme/deal/7"
