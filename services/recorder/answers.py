"""What a caller hears about its entry: contract.md's table of `POST /v1/runs/{r}/calls`, from an entry's status. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import asyncpg

from recorder.drafting import Body, Stands
from recorder.journal import JournalUnavailable, Refused
from recorder.journal.events_of import completed, public_view
from recorder.journal.reading import StoredEntry
from takeback.attempt import key_conflict
from takeback.errors import Problem, unavailable

JOURNAL_AWAY: Final = (
    JournalUnavailable,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a pooled connection that died while it was being prepared
    OSError,
    TimeoutError,
)
"""What is raised while PostgreSQL cannot be reached."""

NOT_FORWARDED: Final = "Nothing was forwarded"
ONLY_READ: Final = "The tool server was asked; nothing was changed, and what it answered is not passed on"
"""Of a declared read, whose one entry is written after it (J2)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and a document; *problem* is set where the entry ended in one (502, 504)."""

    status: int
    document: dict[str, Any]
    problem: Problem | None = field(default=None)


class Replayed(Exception):
    """The caller's idempotency key already stands for *entry*: that is the answer, and nothing is forwarded again."""

    def __init__(self, entry: str) -> None:
        super().__init__(entry)
        self.entry = entry


def public_entry(
    body: Body, label: int | None, created_at: datetime | None, concluded_at: datetime | None
) -> dict[str, Any]:
    """The entry in *body* as others may see it (contract.md, Entry)."""
    entry = body["entry"]
    if body["internal"].get("secrets", True):
        entry = public_view(body)["entry"]
    else:  # the token alone is sealed; looking for more in every value of every call would cost more than the call
        entry = {**entry, "undo": {key: value for key, value in entry["undo"].items() if key != "compensationToken"}}
    return completed(entry, label, created_at, concluded_at)


def answer_of(stands: Stands, detail: str = "", result: Any = None, *, late: bool = False) -> Answer:
    """What the caller of the call that *stands* so is told; *result* is the tool's own, secrets and all.

    *late*: the call has ended, and that could not be written yet: to its caller a pending one is as good as in doubt.
    """
    entry = public_entry(stands.body, stands.label, stands.created_at, stands.concluded_at)
    entry["status"] = stands.status
    return _answer(entry, detail, result, late)


def answer_of_stored(stored: StoredEntry, result: Any, approval: dict[str, Any] | None) -> Answer:
    """The same for an entry that was read back."""
    if approval is not None and stored.status == "awaiting_approval":
        return Answer(202, {"entry": stored.public, "approval": approval})
    return _answer(stored.public, stored.body.get("detail") or "", result)


def refused(refusal: Refused, sent: str = NOT_FORWARDED) -> Problem:
    """The problem that a refused intent is; raises `Replayed` where the key has its entry. *sent*: what became of the call."""
    match refusal.reason:
        case "idempotency-replay":
            raise Replayed(refusal.detail)
        case "idempotency-conflict":
            return key_conflict()
        case "interaction-taken":
            return Problem(
                409,
                "interaction-taken",
                f"Another run owns this interaction. {sent}; use an id of your own.",
            )
        case "reversal-running":
            return Problem(
                409,
                "reversal-running",
                f"{refusal.detail} is being taken back right now. {sent}; try again when that has ended.",
            )
        case "run-paused" | "run-closed":
            status = refusal.reason.removeprefix("run-")
            return Problem(409, refusal.reason, f"The run is {status}. {sent}.")
        case "fence-moved" | "writer-pending":
            return unavailable("campaign-busy", f"Other calls came first, again and again. {sent}; try again.")
        case _:
            return Problem(409, refusal.reason, f"The entry has moved on ({refusal.detail}). {sent}.")


def journal_unavailable(error: BaseException, sent: str = NOT_FORWARDED) -> Problem:
    """The journal cannot be read or written (J3)."""
    return unavailable("journal-unavailable", f"The journal is away ({type(error).__name__}). {sent}; try again.")


def _answer(entry: dict[str, Any], detail: str, result: Any, late: bool = False) -> Answer:
    match entry["status"]:
        case "committed" | "reverting" | "reverted" | "unverified":
            return Answer(200, {"entry": entry, "result": result})
        case "failed":
            told = _sentence(detail or "The call failed")
            return _problem(Problem(502, "tool-failed", f"{told} The entry says so.", entry=entry, result=result))
        case "in_doubt" | "pending" if entry["status"] == "in_doubt" or late:
            return _problem(
                Problem(
                    504,
                    "in-doubt",
                    f"{_sentence(detail or 'The outcome of the call is not known')} Do not call again: the entry is settled by "
                    "looking at the tool server, or by a person.",
                    entry=entry,
                )
            )
        case "denied" | "expired":
            return _problem(
                Problem(403, "denied", f"The call was {entry['status']}. Nothing was forwarded.", entry=entry)
            )
        case _:
            return Answer(202, {"entry": entry})


def _problem(problem: Problem) -> Answer:
    return Answer(problem.status, problem.document(), problem)


def _sentence(words: str) -> str:
    return f"{words.rstrip('. ')}."
