"""What can go wrong with a server that Takeback starts by itself."""

from pathlib import Path


class EmbeddedServerError(Exception):
    """An embedded server could not be found, started or stopped. Its data was not changed."""


class ServerNotFound(EmbeddedServerError):
    """No program of this name is on the machine; the message says where it was looked for and what to do."""

    def __init__(self, program: str, looked: list[str], remedy: str) -> None:
        super().__init__(f"{program} was not found. Looked in: {'; '.join(looked)}. Nothing was started. {remedy}")


class ServerDidNotStart(EmbeddedServerError):
    """The program ended, or was not ready in time; the message carries the last lines of its log."""

    def __init__(self, program: str, why: str, log: Path) -> None:
        lines = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
        said = "\n  ".join(lines) or "(nothing)"
        super().__init__(
            f"{program} {why}. It was stopped; its data stays as it was. Its log ({log}) ends with:\n  {said}"
        )
