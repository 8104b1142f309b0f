"""A run: its timeline by turns, the graph of what builds on what, and what a person may do with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from notifier.console import drawing
from notifier.console.desk import Desk, Visit
from notifier.console.pages.campaigns import campaign_of
from notifier.console.pages.entries import has_window
from notifier.console.speaker import Document
from takeback import web
from takeback.errors import not_found

_ENTRIES, _DRAWN = 50, 40
_CHANGES = ("pause", "resume", "close")


@dataclass(frozen=True, slots=True)
class Turn:
    """Neighbouring entries of one interaction, or of none; the newest first. *latest*: the newest one with a change."""

    interaction: str | None
    entries: Sequence[Document]
    latest: bool

    @property
    def changes(self) -> list[Document]:
        """What changed something, or tried to."""
        return [entry for entry in self.entries if entry["kind"] not in ("read", "reversal")]

    @property
    def reads(self) -> list[Document]:
        """What only looked."""
        return [entry for entry in self.entries if entry["kind"] == "read"]

    @property
    def reversals(self) -> list[Document]:
        """What took something back."""
        return [entry for entry in self.entries if entry["kind"] == "reversal"]

    @property
    def standing(self) -> int:
        """How many of its changes still stand."""
        return sum(entry["status"] == "committed" for entry in self.changes)

    @property
    def reverted(self) -> bool:
        """Whether it is wholly taken back."""
        happened = [entry for entry in self.changes if entry["status"] not in ("failed", "denied", "expired")]
        return bool(happened) and all(entry["status"] == "reverted" for entry in happened)


def routes(desk: Desk) -> list[Route]:
    """`/console/runs/{run}`, its graph, and its actions."""
    return [
        Route("/console/runs/{run}", desk.page(_timeline)),
        Route("/console/runs/{run}/graph", desk.page(_graph)),
        Route("/console/runs/{run}/{change}", desk.action(_change), methods=["POST"]),
        Route("/console/links/{link}/confirm", desk.action(_confirm), methods=["POST"]),
    ]


async def _timeline(visit: Visit) -> Response:
    run = visit.path("run")
    found, page = await asyncio.gather(
        visit.api.get(f"/v1/runs/{run}"),
        visit.api.get(f"/v1/runs/{run}/entries", order="newest", limit=_ENTRIES, cursor=visit.query("cursor")),
    )
    newest = visit.query("cursor") is None
    campaign, windows = await asyncio.gather(
        campaign_of(visit, found["campaign"]),
        visit.api.windows(found["campaign"], [entry["id"] for entry in page["items"] if has_window(entry)]),
    )
    return visit.render(
        "run.html",
        campaign=campaign,
        windows=windows,
        run=found,
        turns=turns_of(page["items"], with_latest=newest),
        labels={entry["id"]: entry["label"] for entry in page["items"]},
        following=page.get("next"),
        newest=newest,
    )


def turns_of(entries: Sequence[Document], *, with_latest: bool) -> list[Turn]:
    """*entries*, the newest first, by turns; a reversal stands by itself, whichever interaction it belongs to."""
    turns: list[Turn] = []
    latest_found = not with_latest
    for (interaction, _), group in groupby(entries, lambda one: (one["interaction"], one["kind"] == "reversal")):
        turn = Turn(interaction, list(group), latest=False)
        happened = any(entry["status"] in ("committed", "reverting", "reverted") for entry in turn.changes)
        if interaction is not None and happened and not latest_found:
            latest_found, turn = True, Turn(interaction, turn.entries, latest=True)
        turns.append(turn)
    return turns


async def _graph(visit: Visit) -> Response:
    run, skip = visit.path("run"), visit.number("skip")
    found, drawn = await asyncio.gather(
        visit.api.get(f"/v1/runs/{run}"),
        visit.api.get(f"/v1/runs/{run}/graph", skip=skip, limit=_DRAWN + 1),
    )
    entries: list[dict[str, Any]] = drawn["entries"][:_DRAWN]
    every = visit.query("links") == "all"
    shown = {entry["id"] for entry in entries}
    links = [link for link in drawn["links"] if link["entry"] in shown and link["dependsOn"] in shown]
    picture = drawing.graph(entries, links, all_links=every)
    return visit.render(
        "graph.html",
        campaign=await campaign_of(visit, found["campaign"]),
        run=found,
        picture=picture,
        links=[link for link in picture.links if link["source"] != "default" or every],
        entries={entry["id"]: entry for entry in entries},
        every=every,
        skip=skip,
        earlier=max(skip - _DRAWN, 0) if skip else None,
        later=skip + _DRAWN if len(drawn["entries"]) > _DRAWN else None,
        strength=drawing.STRENGTH,
    )


async def _change(visit: Visit) -> Response:
    run, change = visit.path("run"), visit.request.path_params["change"]
    if change not in _CHANGES:
        raise not_found()
    await visit.api.post(f"/v1/runs/{run}/{change}")
    return visit.go(f"/console/runs/{run}", "changed")


async def _confirm(visit: Visit) -> Response:
    await visit.api.post(f"/v1/links/{visit.path('link')}/confirm")
    return visit.go(f"/console/runs/{web.checked_id(visit.field('run'))}/graph?skip={_skip(visit)}", "confirmed")


def _skip(visit: Visit) -> int:
    given = visit.field("skip", "0")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else 0
