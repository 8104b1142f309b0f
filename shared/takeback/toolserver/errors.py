"""The errors of a tool server."""


class OperationError(Exception):
    """A tool's own refusal, in words for whoever called it. Whatever the operation did is rolled back.

    The caller gets an MCP result with ``isError``; the journal's entry becomes `failed`.
    """


class StaleFence(OperationError):
    """A call whose fence is lower than one already seen: its holder lost the lock long ago. Nothing was done."""


class KeyForsworn(OperationError):
    """A call whose idempotency key was declared `never` to an observer: it came too late. Nothing was done."""


class NotRestored(OperationError):
    """A revert that did not bring back what it should have. It was rolled back: nothing was changed."""


class UnknownTool(Exception):
    """There is no such operation or record here."""
