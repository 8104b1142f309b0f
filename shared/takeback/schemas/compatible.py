"""Whether a reader or a writer of yesterday can go on with today's schema. Pure.

What Takeback writes (`out`) may only become narrower: nothing that a reader counts on goes, nothing comes that it does not
expect where it was promised that nothing would. What clients write (`in`) may only become wider. In both directions a member
may be added as long as it is optional, and none may be removed or become required.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from takeback.schemas.documents import Direction

_UPPER = ("maxLength", "maximum", "exclusiveMaximum", "maxItems", "maxProperties")
_LOWER = ("minLength", "minimum", "exclusiveMinimum", "minItems", "minProperties")
_WIDER = {("integer", "number")}
Document = dict[str, Any]


def breaking(old: Document, new: Document, direction: Direction) -> list[str]:
    """What in *new* somebody who knows *old* cannot follow, each with its place; empty when they can."""
    return list(dict.fromkeys(_Comparison(old, new, direction).between(old, new, "", frozenset())))


class _Comparison:
    def __init__(self, old: Document, new: Document, direction: Direction) -> None:
        self._roots = old, new
        self._direction = direction

    def between(self, old: Any, new: Any, at: str, seen: frozenset[tuple[str, str]]) -> Iterator[str]:
        refs = (_ref(old), _ref(new))
        if refs[0] and refs[1]:
            if refs in seen:
                return
            seen |= {refs}
        old, new = _resolved(old, self._roots[0]), _resolved(new, self._roots[1])
        olds, news = _alternatives(old), _alternatives(new)
        if len(olds) > 1 or len(news) > 1:
            yield from self._alternatives(olds, news, at, seen)
            return
        yield from self._values(old, new, at)
        yield from self._limits(old, new, at)
        yield from self._members(old, new, at, seen)

    def _alternatives(
        self, olds: list[Any], news: list[Any], at: str, seen: frozenset[tuple[str, str]]
    ) -> Iterator[str]:
        """Out: each new alternative is one that the reader knows; in: each old one is still taken."""
        if self._direction == "out":
            for new in news:
                if not any(not list(self.between(old, new, at, seen)) for old in olds):
                    yield f"{at or '/'}: another kind of value may come"
        else:
            for old in olds:
                if not any(not list(self.between(old, new, at, seen)) for new in news):
                    yield f"{at or '/'}: a kind of value is not taken any more"

    def _values(self, old: Document, new: Document, at: str) -> Iterator[str]:
        narrow, wide = (new, old) if self._direction == "out" else (old, new)
        inner, outer = narrow.get("type"), wide.get("type")
        if outer is not None and inner != outer and (inner, outer) not in _WIDER:
            yield f"{at or '/'}: its type was {old.get('type', 'any')} and is {new.get('type', 'any')}"
        allowed, used = _enumerated(wide), _enumerated(narrow)
        if allowed is not None and (used is None or not used <= allowed):
            gone = "values that were not foreseen" if self._direction == "out" else "values that were allowed are gone"
            yield f"{at or '/'}: {gone}: {', '.join(sorted((used or {'any'}) - allowed))}"
        for keyword in ("pattern", "format"):
            if wide.get(keyword) is not None and narrow.get(keyword) != wide[keyword]:
                yield f"{at or '/'}: its {keyword} changed"

    def _limits(self, old: Document, new: Document, at: str) -> Iterator[str]:
        narrow, wide = (new, old) if self._direction == "out" else (old, new)
        for keyword in (*_UPPER, *_LOWER):
            if keyword not in wide:
                continue
            bound, other = wide[keyword], narrow.get(keyword)
            if other is None or (other > bound if keyword in _UPPER else other < bound):
                yield f"{at or '/'}: its {keyword} changed"

    def _members(self, old: Document, new: Document, at: str, seen: frozenset[tuple[str, str]]) -> Iterator[str]:
        before, after = set(old.get("required", ())), set(new.get("required", ()))
        yield from (f"{at}/{name}: became required" for name in sorted(after - before))
        if self._direction == "out":
            yield from (f"{at}/{name}: may be absent now" for name in sorted(before - after))
        had, has = old.get("properties", {}), new.get("properties", {})
        for name, inner in had.items():
            if name not in has:
                yield f"{at}/{name}: was removed"
            else:
                yield from self.between(inner, has[name], f"{at}/{name}", seen)
        for keyword in ("items", "additionalProperties"):
            inner, outer = old.get(keyword), new.get(keyword)
            if isinstance(inner, dict) and isinstance(outer, dict):
                yield from self.between(inner, outer, f"{at}/{keyword}", seen)
        if self._direction == "in" and new.get("additionalProperties") is False is not old.get("additionalProperties"):
            yield f"{at or '/'}: members that it does not name are refused now"
        for number, (inner, outer) in enumerate(
            zip(old.get("prefixItems", ()), new.get("prefixItems", ()), strict=False)
        ):
            yield from self.between(inner, outer, f"{at}/{number}", seen)


def _ref(schema: Any) -> str:
    return str(schema.get("$ref", "")) if isinstance(schema, dict) else ""


def _resolved(schema: Any, root: Document) -> Document:
    while reference := _ref(schema):
        schema = root["$defs"][reference.rsplit("/", 1)[-1]]
    return schema if isinstance(schema, dict) else {}


def _alternatives(schema: Document) -> list[Any]:
    return list(schema.get("anyOf") or schema.get("oneOf") or [schema])


def _enumerated(schema: Document) -> set[str] | None:
    if "const" in schema:
        return {str(schema["const"])}
    return {str(value) for value in schema["enum"]} if "enum" in schema else None
