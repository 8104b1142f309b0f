"""Continuing: an approved call is forwarded exactly once, by one replica, if things still are as they were shown (S13)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import structlog

from recorder.answers import JOURNAL_AWAY
from recorder.approvals import ASKING, Approvals, Due
from recorder.concluding import stands_of
from recorder.intake import Snapshot
from recorder.intending import Agreed, MovedOn
from recorder.journal.reading import JournalReader, StoredEntry
from recorder.journal.vault import Vault
from recorder.recording import Recording
from recorder.resolving import Call, Resolver
from takeback.auth import Caller
from takeback.errors import Problem
from takeback.messages.entry import CallRequest

log = structlog.get_logger()
_RETRY_SECONDS: Final = 1.0
_SIDE_BY_SIDE: Final = 16


class Continuations:
    """Takes approved calls, one row each, and forwards them under the same steps as any call."""

    def __init__(
        self,
        *,
        name: str,
        approvals: Approvals,
        recording: Recording,
        resolver: Resolver,
        reader: JournalReader,
        vault: Vault,
        lease_seconds: float,
    ) -> None:
        self._name = name
        self._approvals = approvals
        self._recording = recording
        self._resolver = resolver
        self._reader = reader
        self._vault = vault
        self._lease_seconds = lease_seconds
        self._gate = asyncio.Semaphore(_SIDE_BY_SIDE)
        self._at_work: set[asyncio.Task[None]] = set()

    async def sweep(self) -> None:
        """Takes everything that is due now; what is taken goes on by itself."""
        while True:
            await self._gate.acquire()
            try:
                due = await self._approvals.due(self._name, self._lease_seconds)
            except BaseException:
                self._gate.release()
                raise
            if due is None:
                self._gate.release()
                return
            task = asyncio.ensure_future(self._take(due))
            self._at_work.add(task)
            task.add_done_callback(self._at_work.discard)

    async def drain(self) -> None:
        """Waits for what was taken."""
        if self._at_work:
            await asyncio.wait(set(self._at_work))

    async def _take(self, due: Due) -> None:
        try:
            await self._continue(due)
        except MovedOn as moved:
            await self._approvals.close(due.approval, due.entry, moved.reason)
        except JOURNAL_AWAY as error:
            log.warning("an approved call waits for the journal", entry=due.entry, error=str(error))
        except Exception:
            log.exception("an approved call could not be continued", entry=due.entry)
        finally:
            self._gate.release()

    async def _continue(self, due: Due) -> None:
        stored = await self._reader.entry(due.entry)
        if stored is None or stored.status != "awaiting_approval":
            await self._approvals.forwarded(due.approval)
            return
        try:
            call, agreed = await self._agreed(stored)
            await self._recording.resume(call, agreed)
        except Problem as problem:
            await self._after(due, problem)
        else:
            await self._approvals.forwarded(due.approval)

    async def _after(self, due: Due, problem: Problem) -> None:
        if problem.slug in ("tool-failed", "in-doubt", "status-changed"):
            await self._approvals.forwarded(due.approval)
        elif problem.status >= 500 or problem.slug in ("run-paused", "reversal-running"):
            await self._approvals.put_back(due.approval, _RETRY_SECONDS)
        else:
            await self._approvals.close(due.approval, due.entry, problem.detail)

    async def _agreed(self, stored: StoredEntry) -> tuple[Call, Agreed]:
        """The call as it would be made now; raises `MovedOn` where what was agreed to is no longer it."""
        body, internal = stored.body, stored.body["internal"]
        keys = await self._vault.keys(stored.campaign)
        request = _request_of(body, keys.unseal_fields(stored.id, "arguments", body["entry"]["arguments"]))
        caller = Caller(internal["by"]["sub"], internal["by"]["kind"])
        call = await self._resolver.again(stored.run, caller, request, stored.id, body["entry"])
        if call.arguments_hash != internal["argumentsHash"]:
            raise MovedOn("the arguments are not those that were shown")
        if call.settings.policy_digest != body["entry"]["policyDigest"]:
            raise MovedOn("the policy has changed since the call was asked for")
        if call.operation.pin != internal["pin"] or (call.operation.changed and not internal["changed"]):
            raise MovedOn("the operation's definition has changed since the call was asked for")
        if call.decision().verdict == "deny":
            raise MovedOn("the policy denies the operation")
        snapshot = Snapshot.of(keys.unseal_fields(stored.id, "snapshot", body["entry"]["snapshot"]))
        stands = stands_of(stored)
        asked = {key: value for key, value in stands.body.items() if key not in ASKING}
        return call, Agreed(stands._replace(body=asked), snapshot, internal.get("doubt"))


def _request_of(body: dict[str, Any], arguments: Any) -> CallRequest:
    entry, host = body["entry"], body["host"]
    return CallRequest(
        server=entry["server"],
        operation=entry["operation"],
        arguments=arguments,
        agent=entry["agent"],
        model=entry["model"],
        principal=entry["principal"],
        interaction=entry["interaction"],
        uses=host["uses"],
        depends_on=host["dependsOn"],
        remedies=entry["remedies"],
        corrects=entry["corrects"],
    )
