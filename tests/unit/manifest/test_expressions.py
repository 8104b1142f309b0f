"""Expressions and templates of manifests, and the functions beside CEL's own."""

from __future__ import annotations

import ast
import shlex
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.manifest import expressions
from recorder.manifest.expressions import BadExpression, ExpressionFailed, evaluate, fill, holds

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
scalars = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_a_value_goes_through_an_expression_unchanged(value: object) -> None:
    """J10: what was read is what is written back."""
    assert evaluate("value", {"value": value}) == value
    assert fill({"a": ["${value}"]}, {"value": value}) == {"a": [value]}


@given(texts)
def test_text_without_marks_is_itself_and_an_escaped_mark_is_literal(text: str) -> None:
    plain = text.replace("$", "")
    assert fill(plain, {}) == plain
    assert fill(f"$${{{plain}", {}) == "${" + plain


@given(texts)
def test_an_expression_inside_text_stands_where_it_is_written(text: str) -> None:
    assert fill("<${x}|${x}>", {"x": text}) == f"<{text}|{text}>"


def test_a_missing_field_is_an_error_and_null_is_a_value() -> None:
    """J11."""
    assert evaluate("a.b", {"a": {"b": None}}) is None
    assert holds("a.b == null", {"a": {"b": None}})
    assert holds("has(a.b) && !has(a.c)", {"a": {"b": None}})
    for source in ("a.c", "a['c']", "b", "l[3]", "a.b.c", "one([])", "pick(a, ['c'])", "capture('x', 'y')"):
        with pytest.raises(ExpressionFailed):
            evaluate(source, {"a": {"b": None}, "l": [1]})


@pytest.mark.parametrize("source", ["a.", "no_such(a)", "a ? 1", "'", "x" * 5000, "__import__('os')", "a.exists(x)"])
def test_what_is_no_expression_is_found_before_it_is_used(source: str) -> None:
    with pytest.raises(BadExpression):
        expressions.check(source)


def test_a_condition_is_true_or_false_and_nothing_else() -> None:
    for source in ("1", "'true'", "null", "[]"):
        with pytest.raises(ExpressionFailed):
            holds(source, {})


def test_a_list_or_a_map_has_no_one_spelling_inside_a_text() -> None:
    for value in ([1], {"a": 1}, None, 1.5):
        with pytest.raises(ExpressionFailed):
            fill("x${v}", {"v": value})


def test_a_quoted_brace_does_not_end_an_expression() -> None:
    assert fill("${'}' + {'a': '}'}.a}", {}) == "}}"
    with pytest.raises(BadExpression):
        expressions.check_template("${'}'")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_text_is_safely_quoted_for_sql_and_for_a_shell(text: str) -> None:
    literal = evaluate("sql(t)", {"t": text})
    assert sqlite3.connect(":memory:").execute(f"select {literal}").fetchone() == (text,)
    assert shlex.split(evaluate("shell(t)", {"t": text})) == [text]


@given(texts, texts)
def test_two_paths_that_name_the_same_have_one_spelling(first: str, second: str) -> None:
    a, b = (part.replace("/", "").replace("\0", "").replace(".", "") or "x" for part in (first, second))
    assert evaluate("canonical(p)", {"p": f"/{a}//./{b}/../{b}/"}) == f"/{a}/{b}"


@given(st.lists(st.dictionaries(texts, scalars, max_size=3), max_size=3))
def test_what_a_python_server_prints_is_read_back(rows: list[dict[str, object]]) -> None:
    assert evaluate("literal(t)", {"t": repr(rows)}) == rows
    assert ast.literal_eval(repr(rows)) == rows


@pytest.mark.parametrize("text", ["__import__('os').system('x')", "{1, 2}", "[1", "open('x')", "1j"])
def test_what_is_no_plain_value_is_not_read(text: str) -> None:
    with pytest.raises(ExpressionFailed):
        evaluate("literal(t)", {"t": text})


def test_amounts_are_exact() -> None:
    assert evaluate("minus('0.30', '0.10')", {}) == "0.20"
    assert evaluate("plus(1, 2)", {}) == 3
    assert evaluate("plus(a, b)", {"a": 0.1, "b": 0.2}) == 0.3
    with pytest.raises(ExpressionFailed):
        evaluate("plus(true, 1)", {})
