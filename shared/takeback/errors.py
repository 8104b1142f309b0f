"""Problems: every refusal as an RFC 9457 document that says what happened, what was not changed and what to do."""

from __future__ import annotations

from typing import Any

PROBLEM_JSON = "application/problem+json"
_TYPE_BASE = "https://takeback.github.io/problems/"


def words_of(error: BaseException) -> str:
    """What *error* says, for somebody to read; what it is, where it says nothing."""
    return str(error) or type(error).__name__


class Problem(Exception):
    """A refusal with its HTTP status and a stable type.

    *slug* is the last part of the problem's ``type``; *detail* tells what was and was not changed and what to
    do; *extra* are further members of the document (an ``entry``, a ``plan``).
    """

    def __init__(self, status: int, slug: str, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.slug = slug
        self.detail = detail
        self.extra = extra
        self.headers: dict[str, str] = {}

    def retry_after(self, seconds: int) -> Problem:
        """The same problem with a ``Retry-After`` header (RFC 9110)."""
        self.headers["Retry-After"] = str(seconds)
        return self

    def document(self) -> dict[str, Any]:
        """The problem as its JSON document."""
        return {
            **self.extra,
            "type": _TYPE_BASE + self.slug,
            "title": self.slug.replace("-", " "),
            "status": self.status,
            "detail": self.detail,
        }

    @classmethod
    def of(cls, document: dict[str, Any]) -> Problem:
        """The problem that *document* describes (as it travels in a bus reply)."""
        known = {"type", "title", "status", "detail"}
        extra = {key: value for key, value in document.items() if key not in known}
        return cls(int(document["status"]), str(document["type"]).rsplit("/", 1)[-1], str(document["detail"]), **extra)


def not_found() -> Problem:
    """The one 404: the same bytes for what does not exist and for what the caller may not know of (G7)."""
    return Problem(404, "not-found", "There is nothing here, or nothing that you may see. Nothing was changed.")


def not_authorised(what: str) -> Problem:
    """A member without the authority for *what* (G7); the caller of this writes the security log entry."""
    return Problem(403, "not-authorised", f"You may not {what}. Nothing was changed.")


def human_required(what: str) -> Problem:
    """An agent or a service tried what only a person may do."""
    return Problem(403, "human-required", f"Only a person may {what}. Nothing was changed.")


def invalid(detail: str, **extra: Any) -> Problem:
    """Input that cannot be used as it is."""
    return Problem(422, "invalid", f"{detail} Nothing was changed.", **extra)


def unavailable(slug: str, detail: str) -> Problem:
    """A part is away for now: safe to try again."""
    return Problem(503, slug, detail).retry_after(1)
