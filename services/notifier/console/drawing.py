"""Pictures as numbers: a run's graph as arcs beside its entries, and bars. Pure; the templates draw them as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ROW, TOP, LEFT = 34, 24, 150
"""Pixels: the height of an entry's row, the first row's middle, and where the entries' dots stand."""
_WIDEST = 130
_FEW_DEFAULTS = 24
STRENGTH = ("confirmed", "declared", "host", "inferred", "default")
"""The sources of links, the surest first."""


@dataclass(frozen=True, slots=True)
class Arc:
    """A link from a later entry up to an earlier one, as an SVG path. *title* says it in words."""

    id: str
    source: str
    path: str
    title: str


@dataclass(frozen=True, slots=True)
class Dot:
    """An entry of the picture."""

    entry: Mapping[str, Any]
    y: int


@dataclass(frozen=True, slots=True)
class Picture:
    """The graph; *left* is where it begins, *links* are those that are drawn, in order of their entries.

    *hidden* default links are left out because they would be a carpet.
    """

    dots: Sequence[Dot]
    arcs: Sequence[Arc]
    links: Sequence[Mapping[str, Any]]
    left: int
    height: int
    hidden: int


def graph(entries: Sequence[Mapping[str, Any]], links: Sequence[Mapping[str, Any]], *, all_links: bool) -> Picture:
    """*entries* from top to bottom, an arc for each pair's surest link; many default links only where *all_links*."""
    place = {entry["id"]: number for number, entry in enumerate(entries)}
    label = {entry["id"]: entry["label"] for entry in entries}
    surest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for link in links:
        pair = (link["entry"], link["dependsOn"])
        if pair[0] in place and pair[1] in place:
            held = surest.get(pair)
            if held is None or STRENGTH.index(link["source"]) < STRENGTH.index(held["source"]):
                surest[pair] = link
    defaults = sum(link["source"] == "default" for link in surest.values())
    hide = defaults > _FEW_DEFAULTS and not all_links
    drawn = [link for link in surest.values() if not (hide and link["source"] == "default")]
    drawn.sort(key=lambda link: -STRENGTH.index(link["source"]))  # the surest are drawn last, on top
    widest = max((place[link["entry"]] - place[link["dependsOn"]] for link in drawn), default=0)
    return Picture(
        links=sorted(drawn, key=lambda link: (place[link["entry"]], place[link["dependsOn"]])),
        left=LEFT - round(0.76 * _out(widest)) - 10,
        dots=[Dot(entry, TOP + ROW * number) for number, entry in enumerate(entries)],
        arcs=[_arc(link, place, label) for link in drawn],
        height=TOP * 2 + ROW * max(len(entries) - 1, 0),
        hidden=defaults if hide else 0,
    )


def _out(rows: int) -> int:
    return min(26 + 16 * rows, _WIDEST)


def _arc(link: Mapping[str, Any], place: Mapping[str, int], label: Mapping[str, str]) -> Arc:
    later, earlier = place[link["entry"]], place[link["dependsOn"]]
    below, above = TOP + ROW * later, TOP + ROW * earlier
    out = LEFT - _out(later - earlier)
    return Arc(
        id=link["id"],
        source=link["source"],
        path=f"M {LEFT - 7} {below} C {out} {below}, {out} {above}, {LEFT - 7} {above}",
        title=f"{label[link['entry']]} builds on {label[link['dependsOn']]} ({link['source']})",
    )
