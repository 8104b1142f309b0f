"""Expressions of a manifest: CEL over JSON values, and templates, JSON with ``${expression}`` inside its text. Pure.

A missing field is an error and null is a value. Expressions compute; what is done, in which order and how often is said by
the manifest's structure alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import cel

from recorder.manifest.functions import FUNCTIONS

Scope = Mapping[str, Any]
"""The values that an expression may name."""

logging.getLogger("cel").setLevel(logging.CRITICAL)  # it warns of what is raised here anyway

_MOST: Final = 4000
_BUILT_IN: Final = frozenset(
    {
        *("size", "int", "uint", "double", "string", "bytes", "bool", "timestamp", "duration", "type", "dyn"),
        *("min", "max", "contains", "startsWith", "endsWith", "matches"),
    }
)
"""CEL's own functions that a manifest has a use for; its macros are no functions."""


class BadExpression(ValueError):
    """An expression that cannot be read. The message says why."""


class ExpressionFailed(Exception):
    """An expression that has no value: something that it names is missing, or of the wrong kind."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{_short(source)}: {reason}")
        self.source = source
        self.reason = reason


def check(source: str) -> None:
    """Raise `BadExpression` for what is no expression, or calls what there is not."""
    _compiled(source)


def names_in(source: str) -> frozenset[str]:
    """The top names that *source* reads; those bound by its own macros are among them."""
    return frozenset(_compiled(source).variables())


def evaluate(source: str, scope: Scope) -> Any:
    """The value of *source*, as JSON has it. Raises `ExpressionFailed`."""
    program = _compiled(source)
    context = cel.Context(
        variables={name: scope[name] for name in program.variables() if name in scope}, functions=FUNCTIONS
    )
    try:
        value = program.execute(context)
    except Exception as error:  # whatever the library or a function raises is the expression's fault
        raise ExpressionFailed(source, _reason(error)) from error
    return _plain(source, value)


def holds(source: str, scope: Scope) -> bool:
    """Whether the condition *source* holds. Raises `ExpressionFailed`, also where it is neither true nor false."""
    value = evaluate(source, scope)
    if not isinstance(value, bool):
        raise ExpressionFailed(source, f"a condition is true or false, and this is {value!r:.60}")
    return value


def check_template(template: Any) -> None:
    """Raise `BadExpression` for an expression in *template* that cannot be read."""
    for source in expressions_in(template):
        check(source)


def expressions_in(template: Any) -> Iterator[str]:
    """All expressions inside *template*."""
    match template:
        case str():
            yield from (part for part, is_code in _parts(template) if is_code)
        case Mapping():
            for inner in template.values():
                yield from expressions_in(inner)
        case list() | tuple():
            for inner in template:
                yield from expressions_in(inner)


def fill(template: Any, scope: Scope) -> Any:
    """*template* with its expressions evaluated: a text that is one expression takes its value, whatever its kind.

    Raises `ExpressionFailed`.
    """
    match template:
        case str():
            return _filled(template, scope)
        case Mapping():
            return {name: fill(inner, scope) for name, inner in template.items()}
        case list() | tuple():
            return [fill(inner, scope) for inner in template]
    return template


def fill_text(template: str, scope: Scope, encode: Any) -> str:
    """*template* as text, each expression's value put through ``encode(value, source)``."""
    return "".join(encode(evaluate(part, scope), part) if is_code else part for part, is_code in _parts(template))


def plain_text(value: Any, source: str) -> str:
    """*value* inside a longer text. Raises `ExpressionFailed` for what has no one spelling there."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(value)
    raise ExpressionFailed(source, f"{value!r:.60} cannot stand inside a text; say how, with string() or tojson()")


def _filled(template: str, scope: Scope) -> Any:
    parts = _parts(template)
    if len(parts) == 1 and parts[0][1]:
        return evaluate(parts[0][0], scope)
    return fill_text(template, scope, plain_text)


@lru_cache(maxsize=4096)
def _parts(template: str) -> tuple[tuple[str, bool], ...]:
    """*template* cut into text (False) and expressions (True); ``$${`` is a literal ``${``."""
    found: list[tuple[str, bool]] = []
    text, at = "", 0
    while at < len(template):
        if template.startswith("$${", at):
            text, at = text + "${", at + 3
        elif template.startswith("${", at):
            end = _end_of(template, at + 2)
            if text:
                found.append((text, False))
            found.append((template[at + 2 : end].strip(), True))
            text, at = "", end + 1
        else:
            text, at = text + template[at], at + 1
    if text or not found:
        found.append((text, False))
    return tuple(found)


def _end_of(template: str, at: int) -> int:
    depth, quoted = 0, ""
    while at < len(template):
        sign = template[at]
        if quoted:
            if sign == "\\":
                at += 1
            elif sign == quoted:
                quoted = ""
        elif sign in "'\"":
            quoted = sign
        elif sign == "{":
            depth += 1
        elif sign == "}":
            if depth == 0:
                return at
            depth -= 1
        at += 1
    raise BadExpression(f"{_short(template)}: a ${{ is not closed")


@lru_cache(maxsize=4096)
def _compiled(source: str) -> cel.Program:
    if len(source) > _MOST:
        raise BadExpression(f"{_short(source)}: an expression has at most {_MOST} characters")
    try:
        program = cel.compile(source)
    except Exception as error:
        raise BadExpression(f"{_short(source)}: {_reason(error)}") from error
    unknown = [
        name
        for name in program.functions()
        if name not in FUNCTIONS and name not in _BUILT_IN and not _is_operator(name)
    ]
    if unknown:
        raise BadExpression(f"{_short(source)}: there is no function {', '.join(unknown)}")
    return program


def _is_operator(name: str) -> bool:
    """How the library calls CEL's operators: ``_+_``, ``@in``; macros are gone by then."""
    return name.startswith("@") or not any(sign.isalpha() for sign in name)


def _plain(source: str, value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case dict():
            if not all(isinstance(name, str) for name in value):
                raise ExpressionFailed(source, "the names in a map are text")
            return {name: _plain(source, inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(source, inner) for inner in value]
    raise ExpressionFailed(source, f"a {type(value).__name__} is no JSON value; use string() or base64()")


def _reason(error: Exception) -> str:
    said = str(error).strip()
    if isinstance(error, KeyError):
        return f"there is no field {said}"
    for mark in ("Python function call failed: ValueError: ", "Python function call failed: "):
        if mark in said:
            return said.split(mark, 1)[1].split(". Check function arguments")[0]
    return (
        " ".join(line.strip() for line in said.splitlines() if line.strip())[:300].rstrip(".") or type(error).__name__
    )


def _short(source: str) -> str:
    flat = " ".join(source.split())
    return flat if len(flat) <= 80 else f"{flat[:77]}..."
