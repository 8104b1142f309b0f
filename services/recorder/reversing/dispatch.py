"""Sending an undo, and looking at what it did (G8, G9).

The idempotency key is the reversal entry's id. What was sent and not answered is asked for again under the same key, which the
server answers without doing it twice; it is never sent under another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import asyncpg
import structlog

from recorder.journal import Idempotency, JournalReader, SealBroken, StoredEntry, Vault
from recorder.reversing.bodies import Claim, claim_of
from recorder.reversing.ending import Endings
from recorder.reversing.finding import Finding
from recorder.reversing.observing import Observer, Ports, Seen
from recorder.reversing.outcome import Answer, Evidence, Judgement, Part, judge
from recorder.reversing.remaps import current_names
from recorder.reversing.sealing import TOKEN_PATH, opened_effects
from recorder.reversing.verification import differences, edited_by_others, unchanged
from recorder.reversing.work import effects_of
from recorder.toolport.port import NotSent, SelfMade, ToolPort, ToolPortError, ToolRefused, Unsupported
from takeback import json
from takeback.errors import Problem
from takeback.extension import CallOutcome, Observation, UndoAnswer, UndoRequest
from takeback.messages.entry import Effect, Entry
from takeback.messages.plan import Receipt

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Answered:
    """What came back for one undo."""

    answer: Answer
    said: UndoAnswer | None = None
    detail: str | None = None


class Dispatch:
    """Sends undos. *deadline*: seconds until an answer no longer counts."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        reader: JournalReader,
        vault: Vault,
        ports: Ports,
        observer: Observer,
        endings: Endings,
        deadline: float,
    ) -> None:
        self._pool = pool
        self._reader = reader
        self._vault = vault
        self._ports = ports
        self._observer = observer
        self._endings = endings
        self._deadline = deadline

    async def unusable(self, original: StoredEntry) -> str | None:
        """Why there is no token to ask with; None where there is one."""
        try:
            await self._token(original)
        except SealBroken as error:
            return f"There is no compensation token that could be used: {error}. Nothing was sent."
        return None

    async def run(
        self,
        claimed: StoredEntry,
        claim: Claim,
        original: StoredEntry,
        names: Mapping[str, str],
        now: Callable[[], datetime],
    ) -> Receipt:
        """Send the undo of a fresh claim for the first time; the receipt, which is in the journal.

        *names*: under which name a record is known now; *now*: the database's clock.
        """
        finding = await self._find(claim, original, names, resumed=False)
        return await self._endings.conclude(claimed, claim, original, finding, now())

    async def resume(self, claimed: StoredEntry) -> Receipt:
        """Go on with a claim whose undo may have been sent before: ask again under its key, then look."""
        claim, original = await self._claim(claimed)
        finding = await self._find(claim, original, await self._names(original), resumed=True)
        return await self._endings.conclude(claimed, claim, original, finding, await self._reader.now())

    async def settle(self, claimed: StoredEntry) -> Receipt | None:
        """The same for a claim in doubt; None, and nothing written, while it stays in doubt."""
        claim, original = await self._claim(claimed)
        finding = await self._find(claim, original, await self._names(original), resumed=True)
        if finding.judgement.outcome == "in_doubt":
            return None
        return await self._endings.conclude(claimed, claim, original, finding, await self._reader.now())

    async def resolve(
        self,
        claimed: StoredEntry,
        outcome: Literal["happened", "did-not-happen"],
        settled: str,
        key: Idempotency | None = None,
    ) -> Receipt:
        """Write a person's word on a claim; *settled* says whose and why. The records are looked at, for their versions."""
        claim, original = await self._claim(claimed)
        _, after = await self._look(claim, original, None, await self._names(original), ask_key=None)
        judgement = Judgement("reverted" if outcome == "happened" else "failed", settled)
        finding = Finding(judgement, after=after)
        return await self._endings.conclude(claimed, claim, original, finding, await self._reader.now(), key)

    async def _find(self, claim: Claim, original: StoredEntry, names: Mapping[str, str], *, resumed: bool) -> Finding:
        answered = await self._send(claim, original, names, resumed=resumed)
        if answered.answer == "none":
            log.warning("undo was not answered", entry=original.id, reversal=claim.reversal, error=answered.detail)
        # To ask for the key gives it up where nothing came of it yet: only once it was asked for again.
        ask_key = claim.reversal if resumed and answered.answer not in ("reverted", "already_reverted") else None
        parts, after = await self._look(claim, original, answered.said, names, ask_key)
        call: CallOutcome | None = None
        for part in parts:
            if part.after is not None and part.after.call is not None:
                call = part.after.call.outcome
        judgement = judge(Evidence(answered.answer, parts, resumed, call, answered.detail))
        return Finding(judgement, parts, after, answered.said)

    async def _send(self, claim: Claim, original: StoredEntry, names: Mapping[str, str], *, resumed: bool) -> Answered:
        try:
            port = await self._ports.port(original.campaign, original.entry["server"])
            async with asyncio.timeout(self._deadline):
                said = await self._undo(port, original, claim, names, resumed=resumed)
        except NotSent as error:
            return Answered("not_sent", detail=str(error))
        except (ToolRefused, Unsupported) as error:
            return Answered("refused", detail=str(error))
        except ToolPortError as error:
            return Answered("none", detail=str(error))
        except TimeoutError:
            return Answered("none", detail=f"No answer within {self._deadline:g} seconds.")
        except Problem as problem:
            return Answered("not_sent", detail=problem.detail)
        return _kept(said)

    async def _undo(
        self, port: ToolPort, original: StoredEntry, claim: Claim, names: Mapping[str, str], *, resumed: bool
    ) -> UndoAnswer:
        """Who made the token is known from the journal: a server's own is never taken for a manifest's, nor shown to others."""
        token = await self._token(original)
        fields = list(claim.fields) if claim.fields is not None else None
        expected = {name: wanted.version for name, wanted in claim.expected.items() if not wanted.any_version}
        if original.body.get("internal", {}).get("source") != "manifest":
            named = {name: version for name, version in expected.items() if version is not None}
            request = UndoRequest(
                compensation_token=token,
                if_version=claim.if_version,
                if_versions=named if len(claim.expected) > 1 else None,
                force=claim.force,
                fields=fields,
                idempotency_key=claim.reversal,
            )
            return await port.undo(request, deadline=self._deadline)
        if not isinstance(port, SelfMade):
            raise Unsupported("The call was made under a manifest, and its server is registered without one by now")
        return await port.compensate(
            token,
            expected=expected,
            names=names,
            force=claim.force,
            fields=fields,
            resumed=resumed,
            idempotency_key=claim.reversal,
            deadline=self._deadline,
        )

    async def _token(self, original: StoredEntry) -> str:
        keys = await self._vault.keys(original.campaign)
        return str(keys.unseal(original.id, TOKEN_PATH, original.body["entry"]["undo"].get("compensationToken")))

    async def _look(
        self,
        claim: Claim,
        original: StoredEntry,
        said: UndoAnswer | None,
        names: Mapping[str, str],
        ask_key: str | None,
    ) -> tuple[list[Part], dict[str, Observation]]:
        """The records after the undo, as parts and by the names that the claim gave them."""
        moved = {remap.from_: remap.to for remap in said.remaps} if said is not None else {}
        effects = await self._effects(original)
        called = [names.get(effect.resource or "", effect.resource or "") for effect in effects]
        targets = [moved.get(name, name) for name in called]
        seen = await self._observer.see_all(original.campaign, original.entry["server"], targets, ask_key)
        parts = [
            self._part(claim, effect, name, target, seen[target])
            for effect, name, target in zip(effects, called, targets, strict=True)
        ]
        after = {name: part.after for name, part in zip(called, parts, strict=True) if part.after is not None}
        return parts, after

    def _part(self, claim: Claim, effect: Effect, was_called: str, target: str, seen: Seen) -> Part:
        before = claim.before.get(was_called)
        expected = claim.expected.get(was_called)
        now = seen.observation if seen.error is None else None
        wrong: Sequence[str] | None = None
        if now is not None:
            tolerated = edited_by_others(effect, before) if claim.force and before is not None else None
            wrong = differences(effect, now, fields=claim.fields, tolerated=tolerated)
        return Part(
            resource=target,
            expected_version=expected.version if expected is not None else None,
            before=before,
            after=now,
            wrong=wrong,
            untouched=before is not None and now is not None and target == was_called and unchanged(before, now),
            unobservable=seen.never,
        )

    async def _claim(self, claimed: StoredEntry) -> tuple[Claim, StoredEntry]:
        claim = claim_of(claimed, await self._vault.keys(claimed.campaign))
        original = await self._reader.entry(claim.original)
        assert original is not None
        return claim, original

    async def _effects(self, original: StoredEntry) -> list[Effect]:
        """The effects with their secret fields open: what is verified against."""
        keys = await self._vault.keys(original.campaign)
        opened = opened_effects(keys, original.id, original.entry.get("effects") or [])
        return effects_of(Entry.model_validate({**original.public, "effects": opened}))

    async def _names(self, original: StoredEntry) -> dict[str, str]:
        return await current_names(self._pool, original.campaign, record_names(original))


def _kept(said: UndoAnswer) -> Answered:
    """The answer, unless it holds what the journal cannot keep: that is as good as one that could not be read."""
    try:
        json.check(said.wire())
    except Problem as problem:
        return Answered("unknown", detail=f"The tool server's answer cannot be kept: {problem.detail}")
    return Answered(said.outcome, said, said.detail)


def record_names(original: StoredEntry) -> list[str]:
    """The records of *original* under the names that its own effects give them."""
    return [effect.resource for effect in effects_of(Entry.model_validate(original.public)) if effect.resource]
