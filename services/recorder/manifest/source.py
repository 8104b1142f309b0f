"""A manifest's text: the document that it holds, and on which line each place of it stands. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from takeback import json
from takeback.errors import Problem

Place = tuple[str | int, ...]
_LONGEST: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong. *line* is None where the manifest came as JSON."""

    where: str
    reason: str
    line: int | None = None

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line is not None else ""
        return f"{place}{self.where or 'the manifest'}: {self.reason}"


class BadManifest(ValueError):
    """A manifest that cannot be used, with every finding."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__("; ".join(str(finding) for finding in findings[:5]))
        self.findings = findings


class Lines:
    """Where each place of a YAML document stands."""

    def __init__(self, root: yaml.Node | None) -> None:
        self._root = root

    def finding(self, place: Place, reason: str) -> Finding:
        """What is wrong at *place*, with its line, or that of the nearest place around it."""
        return Finding(".".join(str(part) for part in place), reason, self._line(place))

    def _line(self, place: Place) -> int | None:
        if self._root is None:
            return None
        node, line = self._root, self._root.start_mark.line
        for part in place:
            found: tuple[yaml.Node, int] | None = None
            if isinstance(node, yaml.MappingNode):
                for key, value in node.value:
                    if key.value == str(part):
                        found = value, key.start_mark.line
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                found = node.value[part], node.value[part].start_mark.line
            if found is None and part == 0:
                continue  # one part where a list may stand
            if found is None:
                break
            node, line = found
        return int(line) + 1


def loaded(source: str | Mapping[str, Any]) -> tuple[dict[str, Any], Lines]:
    """The document in *source*, YAML text or a JSON object, and its lines. Raises `BadManifest` for anything else."""
    if isinstance(source, Mapping):
        return dict(source), Lines(None)
    if len(source) > _LONGEST:
        raise BadManifest([Finding("", "it is longer than a megabyte")])
    try:
        root = yaml.compose(source, Loader=yaml.SafeLoader)
        document = yaml.safe_load(source)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        hint = " (an expression with `: ` or ` #` in it stands in quotes)" if "mapping values" in reason else ""
        raise BadManifest([Finding("", f"it is no YAML: {reason}{hint}", mark.line + 1 if mark else None)]) from error
    lines = Lines(root)
    if not isinstance(document, dict):
        raise BadManifest([Finding("", "it is a mapping that begins with `takeback: 1`", 1)])
    twice = [Finding(str(key.value), "it stands here twice", key.start_mark.line + 1) for key in _twice(root)]
    if twice:
        raise BadManifest(twice)
    try:
        json.check(document)
    except (Problem, TypeError) as error:
        reason = error.detail if isinstance(error, Problem) else str(error)
        raise BadManifest(
            [Finding("", f"{reason} A date or a time stands in quotes: everything here is JSON.", 1)]
        ) from error
    return document, lines


def _twice(node: yaml.Node | None) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                yield key
            seen.add(str(key.value))
            yield from _twice(value)
    elif isinstance(node, yaml.SequenceNode):
        for inner in node.value:
            yield from _twice(inner)
