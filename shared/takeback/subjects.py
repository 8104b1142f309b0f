"""Where messages go on the bus (contract.md, Bus). Ids are checked before they become part of a subject."""

from __future__ import annotations

from takeback.ids import is_valid_id

STREAM = "TAKEBACK"
"""The JetStream stream that carries every event."""
EVENTS = "takeback.>"
TYPE_PREFIX = "io.github.takeback."

RPC_QUEUE = "recorder"
RPC_HEADS = "rpc.recorder.heads"
RPC_RECORDS = "rpc.recorder.records"
RPC_STREAMS = "rpc.recorder.streams"
RPC_OBSERVE = "rpc.recorder.observe"
RPC_APPEND = "rpc.recorder.append"
RPC_REFUSED = "rpc.recorder.refused"
"""Another service answered 403: the recorder keeps the security log."""


def event_subject(campaign: str, short_type: str) -> str:
    """``takeback.<campaign>.<type>``; raises ValueError for a campaign id that could reach another subject."""
    if not is_valid_id(campaign):
        raise ValueError(f"not a campaign id: {campaign!r}")
    return f"takeback.{campaign}.{short_type}"
