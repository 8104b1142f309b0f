"""A Reversal Plan with every section, the person's choices in it, their decision, and the Reversal Record that follows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from notifier.console import words
from notifier.console.desk import Desk, Visit
from notifier.console.pages.campaigns import campaign_of
from notifier.console.speaker import Document
from takeback import web
from takeback.errors import Problem, invalid

_WAIT_SECONDS = 20
_NAMED = 200
_SECTIONS = ("steps", "notReversible", "unresolved", "readSince", "sideEffects", "suggestions")
RUNNING = ("approved", "executing")
ENDED = ("completed", "partial", "failed")


def routes(desk: Desk) -> list[Route]:
    """Proposing, looking, deciding, and what became of it."""
    return [
        Route("/console/campaigns/{campaign}/plans", desk.action(_propose), methods=["POST"]),
        Route("/console/plans/{plan}", desk.page(_one)),
        Route("/console/plans/{plan}/decision", desk.action(_decide), methods=["POST"]),
        Route("/console/plans/{plan}/record", desk.page(_record)),
        Route("/console/plans/{plan}/record.json", desk.page(_document)),
    ]


async def _propose(visit: Visit) -> Response:
    """A plan for what the form names: shown in a dialog where a script asks, else as a page."""
    campaign = visit.path("campaign")
    target = {name: visit.field(name) for name in ("interaction", "run") if visit.field(name)}
    plan = await visit.api.post(f"/v1/campaigns/{campaign}/plans", target or {"entries": visit.form.get("entry", [])})
    if not visit.wants_part:
        return visit.go(f"/console/plans/{plan['id']}", "proposed")
    run = visit.field("back")
    entries, windows = await asyncio.gather(visit.api.entries(_mentioned(plan)), _windows(visit, plan))
    return visit.render(
        "parts/undo.html",
        plan=plan,
        entries=entries,
        windows=windows,
        choice=needs_choice(plan),
        left=_left(plan, entries),
        run=web.checked_id(run) if run else None,
    )


def needs_choice(plan: Document) -> bool:
    """Whether somebody has to choose before this can be taken back: then the whole plan must be looked at."""
    steps = any(step["conflict"] or step["needsPerson"] for step in plan["steps"])
    lost = any(item["reason"] != "failed" for item in plan["notReversible"])
    return bool(steps or lost or plan["unresolved"] or not plan["steps"])


async def _one(visit: Visit) -> Response:
    plan = await visit.api.get(f"/v1/plans/{visit.path('plan')}")
    campaign, entries, windows = await asyncio.gather(
        campaign_of(visit, plan["campaign"]), visit.api.entries(_mentioned(plan)), _windows(visit, plan)
    )
    consequences = {item["entry"]: item for item in plan["consequences"]}
    return visit.render(
        "plan.html",
        campaign=campaign,
        plan=plan,
        entries=entries,
        windows=windows,
        left=_left(plan, entries) if plan["status"] == "proposed" else len(plan["steps"]),
        consequences=consequences,
        untouched={step["entry"]: untouched_fields(step, entries.get(step["entry"])) for step in plan["steps"]},
        open=plan["status"] == "proposed",
        running=plan["status"] in RUNNING,
        ended=plan["status"] in ENDED,
    )


async def _windows(visit: Visit, plan: Document) -> dict[str, Document]:
    """The windows of a plan's steps while somebody may still decide."""
    if plan["status"] != "proposed":
        return {}
    dated = [step["entry"] for step in plan["steps"] if step["undoBy"] is not None]
    return await visit.api.windows(plan["campaign"], dated[:_NAMED])


def untouched_fields(step: Document, entry: Document | None) -> list[str]:
    """The fields that the call changed and nobody has changed since: they can go back without overwriting anybody."""
    if entry is None or not step["conflict"]:
        return []
    conflicting = {field["field"] for field in step["conflict"]["fields"]}
    effects = words.effects(entry)
    return [change["field"] for effect in effects for change in effect["changes"] if change["field"] not in conflicting]


async def _decide(visit: Visit) -> Response:
    plan = visit.path("plan")
    body = decision_of(visit.form)
    try:
        decided = await visit.api.post(f"/v1/plans/{plan}/decision", body, wait=_WAIT_SECONDS)
    except Problem as problem:
        fresh = problem.extra.get("plan")
        if problem.slug == "plan-stale" and isinstance(fresh, str):
            return visit.go(f"/console/plans/{web.checked_id(fresh)}", "stale")
        raise
    if body["decision"] == "reject":
        return visit.go(f"/console/plans/{plan}", "rejected")
    if visit.field("back") and decided["plan"]["status"] == "completed":
        return visit.go(f"/console/runs/{web.checked_id(visit.field('back'))}", "undone")
    return visit.go(f"/console/plans/{plan}/record")


def decision_of(form: dict[str, list[str]]) -> Document:
    """A person's choices as the API takes them. Each step has a field ``step:ENTRY``: back, override, fields or leave."""
    body: dict[str, Any] = {
        "decision": form.get("decision", [""])[-1],
        "digest": form.get("digest", [""])[-1],
        "leaveOut": [],
        "override": [],
        "fields": {},
        "reason": form.get("reason", [""])[-1],
        "category": form.get("category", [""])[-1] or None,
    }
    for name, chosen in form.items():
        if not name.startswith("step:"):
            continue
        entry = name.removeprefix("step:")
        match chosen[-1]:
            case "back":
                pass
            case "leave":
                body["leaveOut"].append(entry)
            case "override":
                body["override"].append(entry)
            case "fields":
                body["fields"][entry] = form.get(f"fields:{entry}", [])
            case _:
                raise invalid("A step has a choice that this page does not offer.")
    return body


async def _record(visit: Visit) -> Response:
    path = f"/v1/plans/{visit.path('plan')}"
    plan, record = await asyncio.gather(visit.api.get(path), visit.api.maybe(f"{path}/record"))
    mentioned = (
        [*_mentioned(plan), *(receipt["entry"] for receipt in record["receipts"])] if record else _mentioned(plan)
    )
    campaign, entries = await asyncio.gather(campaign_of(visit, plan["campaign"]), visit.api.entries(mentioned))
    return visit.render("record.html", campaign=campaign, plan=plan, record=record, entries=entries)


async def _document(visit: Visit) -> Response:
    """The Reversal Record as the API gives it, to keep."""
    plan = visit.path("plan")
    return JSONResponse(
        await visit.api.get(f"/v1/plans/{plan}/record"),
        headers={"Content-Disposition": f'attachment; filename="reversal-record-{plan}.json"'},
    )


def _left(plan: Document, entries: dict[str, Document]) -> int:
    """How many steps there is still something to do for."""
    return sum(entries.get(step["entry"], {}).get("status") != "reverted" for step in plan["steps"])


def _mentioned(plan: Document) -> list[str]:
    """The entries that a plan names, as many as a person will read."""
    items: Iterable[Document] = (item for section in _SECTIONS for item in plan[section])
    because = (one["entry"] for step in plan["steps"] for one in step["because"])
    return list(dict.fromkeys([*plan["targets"], *(item["entry"] for item in items), *because]))[:_NAMED]
