"""Reading and acknowledging a review, and telling everybody something: the use cases behind the notifier's doors."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import asyncpg

from notifier import announcements, broadcasts, projection
from notifier.deadlines import Deadlines
from notifier.members import Members, Standing
from notifier.review import Run, review, with_unsettled
from takeback.auth import Caller
from takeback.authority import authority_over
from takeback.errors import human_required, invalid, not_authorised, not_found
from takeback.ids import new_id
from takeback.inbox import Inbox
from takeback.messages.entry import Entry
from takeback.messages.events import Event
from takeback.messages.review import Acknowledgement, AcknowledgementRequest, Deadline, Review
from takeback.rpc import Rpc
from takeback.subjects import RPC_APPEND, RPC_RECORDS, RPC_REFUSED


class Reviews:
    """Every answer stands on everything that was acknowledged before it was asked for, or is a 503 ``behind``."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        inbox: Inbox,
        rpc: Rpc,
        members: Members,
        deadlines: Deadlines,
        catch_up_seconds: float,
    ) -> None:
        self._pool = pool
        self._inbox = inbox
        self._rpc = rpc
        self._members = members
        self._deadlines = deadlines
        self._catch_up_seconds = catch_up_seconds

    async def enter(self, campaign: str, caller: Caller) -> Standing:
        """What *caller* is in *campaign* now; raises the one 404 for a stranger."""
        await self._inbox.catch_up(campaign, self._catch_up_seconds)
        return await self._members.require(campaign, caller)

    async def read(self, run_id: str, caller: Caller) -> Review:
        """What of the run can still be taken back, until when, as of now (N1, N2)."""
        return (await self._read(run_id, caller))[0]

    async def windows(self, campaign: str, caller: Caller, entries: Collection[str]) -> list[Deadline]:
        """The windows of *entries* that are open now, the first to close first."""
        standing = await self.enter(campaign, caller)
        now: datetime = await self._pool.fetchval("select clock_timestamp()")
        found = await self._deadlines.of(self._pool, campaign, entries, now, with_duty=standing != "agent")
        return list(found.values())

    async def acknowledge(
        self, run_id: str, caller: Caller, wanted: AcknowledgementRequest, seed: str | None = None
    ) -> Acknowledgement:
        """Records that a person has seen the run's open windows, or those of *wanted* (N4); *seed* makes it once.

        Only the principal, an owner or an approver; answered when the record is in the journal.
        """
        found, standing, changes = await self._read(run_id, caller)
        if not caller.is_human:
            raise human_required("acknowledge a review")
        role = None if standing == "agent" else standing
        authority = authority_over(caller.sub, role, found.principal, None)
        by = {"sub": caller.sub, "kind": caller.kind, "authority": authority}
        if authority is None:
            what = "acknowledge this review"
            await self._rpc.request(RPC_REFUSED, {"campaign": found.campaign, "by": by, "what": what})
            raise not_authorised(what)
        entries = [window.entry for window in found.open] if wanted.entries is None else wanted.entries
        unlisted = set(entries) - set(changes)
        if foreign := sorted(unlisted - await projection.known_in(self._pool, run_id, unlisted)):
            raise invalid(f"These are no entries of this run: {', '.join(foreign)}.")
        record = f"ack_{seed}" if seed else new_id("ack")
        body = {"run": run_id, "entries": entries}
        await self._rpc.request(
            RPC_APPEND,
            {"id": record, "type": "review.acknowledged", "campaign": found.campaign, "by": by, "body": body},
        )
        await self._inbox.catch_up(found.campaign, self._catch_up_seconds)
        return await projection.acknowledgement(self._pool, record)

    async def broadcast(self, campaign: str, caller: Caller, payload: object, seed: str | None = None) -> Event:
        """Tells every client and subscriber *payload*, with its source (N5): for people alone; *seed* makes it once."""
        await self.enter(campaign, caller)
        if not caller.is_human:
            raise human_required("send a broadcast")
        async with self._pool.acquire() as connection, connection.transaction():
            now: datetime = await connection.fetchval("select clock_timestamp()")
            event = broadcasts.of_person(campaign, caller.sub, payload, seed or new_id("brc"), now)
            await announcements.announce(connection, campaign, event)
        return event

    async def _read(self, run_id: str, caller: Caller) -> tuple[Review, Standing, Collection[str]]:
        """The review, what *caller* is there, and the ids of what the run changed or tried to."""
        campaign = await self._campaign_of(run_id)
        heads = await self._inbox.catch_up(campaign, self._catch_up_seconds)
        standing = await self._members.require(campaign, caller)
        unsettled = [Entry.model_validate(item["entry"]) for item in heads["unsettled"]]
        async with self._pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
            run = await projection.run_of(connection, run_id)
            if run is None:
                raise not_found()
            entries = await projection.changes_of(connection, run_id)
            acknowledged = await projection.acknowledged_in(connection, run_id)
            now: datetime = await connection.fetchval("select clock_timestamp()")
            deadlines = await self._deadlines.of(
                connection, campaign, [entry.id for entry in entries], now, with_duty=standing != "agent"
            )
            known = await projection.known_of(connection, entries, deadlines)
        entries = with_unsettled(entries, (entry for entry in unsettled if entry.run == run_id))
        return review(run, entries, acknowledged, now, known), standing, {entry.id for entry in entries}

    async def _campaign_of(self, run_id: str) -> str:
        """The campaign of a run, from the journal where its opening has not reached the projection yet."""
        known: Run | None = await projection.run_of(self._pool, run_id)
        if known is not None:
            return known.campaign
        page = await self._rpc.request(RPC_RECORDS, {"stream": run_id, "after": 0, "limit": 1})
        for event in page["events"]:
            if event["type"].endswith("run.opened"):
                return str(event["data"]["campaign"])
        raise not_found()
