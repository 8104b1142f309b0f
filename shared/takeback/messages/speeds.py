"""How fast reviews happen, and what follows from it for the policy (N8): `GET …/questions/reviews`."""

from __future__ import annotations

from pydantic import Field

from takeback.messages.base import Id, Instant, Message


class Suggestion(Message):
    """A `minWindowSeconds` within which 95 of 100 reviews happened.

    Of all `windows` so far it would have had `caught` ask first, because they were shorter: `share` of them. Of those that
    were `missed`, that is lapsed without anybody having acknowledged them, it would have caught `missedCaught`, `missedShare`.
    """

    min_window_seconds: int
    windows: int
    caught: int
    share: float
    missed: int
    missed_caught: int
    missed_share: float


class ReviewSpeed(Message):
    """From a run's close to its review, of one person, or of the campaign where `sub` is null: its first by anybody.

    Times are seconds; a review before the close counts 0. Without any review there is nothing to suggest.
    """

    sub: str | None = None
    reviews: int
    median_seconds: float | None = None
    p95_seconds: float | None = None
    suggestion: Suggestion | None = None


class ReviewSpeeds(Message):
    """`GET …/questions/reviews`: of `closedRuns` with something to take back `reviewedRuns` were reviewed, and how fast."""

    campaign: Id
    as_of: Instant
    closed_runs: int
    reviewed_runs: int
    all: ReviewSpeed
    people: list[ReviewSpeed] = Field(default_factory=list)
