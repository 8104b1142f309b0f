"""The parts of the reversals, built once for a recorder by its composition root."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import asyncpg

from recorder.campaigns import Campaigns
from recorder.journal import Journal, JournalReader, Vault
from recorder.journal.dsse import Signer
from recorder.reversing.deciding import Deciding
from recorder.reversing.dispatch import Dispatch
from recorder.reversing.ending import Endings
from recorder.reversing.observing import Observer, Ports
from recorder.reversing.queue import ReversalQueue
from recorder.reversing.runner import Runner
from recorder.reversing.settling import Settling
from recorder.reversing.step import Stepping
from recorder.serial import Serial
from takeback.ids import new_id


@dataclass(frozen=True, slots=True)
class Reversing:
    """*runner* is started and stopped with the recorder; *settling* resolves by a person's word; the others are asked."""

    runner: Runner
    settling: Settling
    deciding: Deciding
    observer: Observer


def build(
    *,
    pool: asyncpg.Pool,
    journal: Journal,
    reader: JournalReader,
    vault: Vault,
    serial: Serial,
    campaigns: Campaigns,
    ports: Ports,
    signer: Signer,
    announce: Callable[[], Awaitable[None]],
    undo_deadline: float = 30.0,
    observe_deadline: float = 10.0,
    sweep_seconds: float = 5.0,
) -> Reversing:
    """Wire them. *announce* tells the other recorders that there may be a reversal to take (`BusDoor.announce`).

    Durations are seconds. A claim's lease covers the undo and the look after it; the lease of a whole reversal is renewed.
    """
    lease = undo_deadline + observe_deadline
    observer = Observer(reader, ports, observe_deadline)
    endings = Endings(pool, journal, reader, vault)
    dispatch = Dispatch(pool, reader, vault, ports, observer, endings, undo_deadline)
    stepping = Stepping(pool, journal, reader, vault, serial, campaigns, observer, dispatch, endings, lease)
    settling = Settling(pool, reader, serial, dispatch, sweep_seconds)
    queue = ReversalQueue(pool, reader, new_id("rec"), max(3 * sweep_seconds, 1.0))
    runner = Runner(queue, stepping, settling, journal, signer, announce, sweep_seconds)
    deciding = Deciding(pool, journal, reader, campaigns, observer, queue, runner)
    return Reversing(runner, settling, deciding, observer)
