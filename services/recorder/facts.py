"""Facts that the planner and the notifier take in: each is one only once it is in the journal (design.md, Services)."""

from __future__ import annotations

from typing import Any

from recorder.campaigns import Campaigns
from recorder.journal import Journal, JournalReader, NewRecord, Refused, Unit
from recorder.reversing.deciding import Deciding, Recorded
from takeback import json
from takeback.auth import Caller
from takeback.errors import human_required, invalid, not_found
from takeback.messages.base import Id, Request
from takeback.messages.plan import PlanDecision
from takeback.messages.rpc import (
    AppendRequest,
    DecidedBody,
    RefusedRequest,
    WindowBody,
    WindowLapsedBody,
    WindowToldBody,
)
from takeback.web import validate

_OF_PEOPLE = {"link.confirmed": "confirm a link", "review.acknowledged": "acknowledge a review"}


class ConfirmedBody(Request):
    """The body of ``link.confirmed``."""

    campaign: Id | None = None
    link: Id
    entry: Id
    depends_on: Id


class AcknowledgedBody(Request):
    """The body of ``review.acknowledged``."""

    campaign: Id | None = None
    run: Id
    entries: list[Id] | None = None


class Facts:
    """Appends what others took in to the campaign's stream, once for each record id."""

    def __init__(self, journal: Journal, reader: JournalReader, campaigns: Campaigns, deciding: Deciding) -> None:
        self._journal = journal
        self._reader = reader
        self._campaigns = campaigns
        self._deciding = deciding

    async def append(self, wanted: AppendRequest) -> Recorded:
        """The fact's place in the campaign's stream; the same place when it is sent again.

        Raises `Problem`: 404 for what is not of the campaign, 403 human-required, 422, and what `Deciding.decide` raises.
        """
        if wanted.type == "plan.decided":
            return await self._decide(wanted)
        if wanted.type in _OF_PEOPLE and wanted.by.kind != "human":
            raise human_required(_OF_PEOPLE[wanted.type])
        id_, body = wanted.id, await self._checked(wanted)
        if wanted.type == "plan.proposed":
            id_ = body["plan"]["id"]  # so that the plan is found by it
        record = NewRecord(
            stream=wanted.campaign,
            campaign=wanted.campaign,
            kind="campaign",
            id=id_,
            type=wanted.type,
            body=json.dumps({**body, "campaign": wanted.campaign, "by": wanted.by.wire()}),
            published=True,
        )
        try:
            appended = await self._journal.append(Unit(records=[record], once=id_))
        except Refused as refused:
            if refused.reason == "duplicate-record" and refused.seq is not None:
                return Recorded(refused.detail, refused.seq)
            if refused.reason == "stream-missing":
                raise not_found() from refused
            raise
        return Recorded(wanted.campaign, appended.records[0].seq)

    async def refused(self, wanted: RefusedRequest) -> dict[str, Any]:
        """Keeps in the security log what another service refused a member."""
        if wanted.by.kind == "system":
            raise invalid("The system is never refused.")
        by = Caller(wanted.by.sub, wanted.by.kind)
        await self._campaigns.security.write(wanted.campaign, by, wanted.what, wanted.entry)
        return {}

    async def _decide(self, wanted: AppendRequest) -> Recorded:
        if wanted.by.kind == "system":
            raise human_required("decide a plan")
        body = validate(wanted.body, DecidedBody)
        decision = PlanDecision(**body.model_dump(exclude={"plan", "campaign", "request"}))
        by = Caller(wanted.by.sub, wanted.by.kind)
        return await self._deciding.decide(wanted.id, wanted.campaign, by, body.plan, decision, body.request)

    async def _checked(self, wanted: AppendRequest) -> dict[str, Any]:
        """The body as it will be kept."""
        match wanted.type:
            case "plan.proposed":
                plan = wanted.body.get("plan")
                if not isinstance(plan, dict) or plan.get("campaign") != wanted.campaign or not plan.get("id"):
                    raise invalid("A proposal carries a plan of the campaign with its id.")
                return wanted.body
            case "link.confirmed":
                confirmed = validate(wanted.body, ConfirmedBody)
                for entry in (confirmed.entry, confirmed.depends_on):
                    stored = await self._reader.entry(entry)
                    if stored is None or stored.campaign != wanted.campaign:
                        raise not_found()
                return confirmed.wire()
            case "review.acknowledged":
                return validate(wanted.body, AcknowledgedBody).wire()
            case "window.reminded" | "window.escalated" | "window.lapsed":
                model = WindowLapsedBody if wanted.type == "window.lapsed" else WindowToldBody
                window: WindowBody = validate(wanted.body, model)
                stored = await self._reader.entry(window.entry)
                if stored is None or stored.campaign != wanted.campaign:
                    raise not_found()
                return window.wire()
            case _:
                return wanted.body
