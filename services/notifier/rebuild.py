"""`takeback rebuild notifier`: the projection anew from the journal; what was fed and announced is not touched."""

from __future__ import annotations

from collections.abc import Mapping

from notifier import projection
from notifier.settings import Settings
from takeback import bus
from takeback.database import connect_pool
from takeback.inbox import Inbox
from takeback.rpc import Rpc
from takeback.subjects import RPC_STREAMS


async def rebuild(environ: Mapping[str, str]) -> str:
    """Derives everything from the journal again, beside running replicas; answers a line that says what was done.

    Stream by stream, each in one transaction, so that a reader never meets half of one. The ledger of announcements and
    the feed's places stay, so nothing is sent again and the feed keeps its epoch. Raises `Problem` 503 without a recorder.
    """
    settings = Settings.of(environ)
    pool = await connect_pool(settings.postgres_url, "notifier")
    client = await bus.connect(settings.nats_url, "takeback rebuild notifier")
    try:
        rpc = Rpc(client)
        inbox = Inbox(pool, rpc, "notifier", projection.apply, projection.forget)
        known: set[str] = set()
        asked: dict[str, str] = {}
        while True:
            page = await rpc.request(RPC_STREAMS, dict(asked))
            for head in page["streams"]:
                await inbox.read_again(head["stream"])
                known.add(head["stream"])
            if page.get("next") is None:
                break
            asked = {"cursor": page["next"]}
        gone = [row["stream"] for row in await pool.fetch("select stream from positions")]
        for stream in set(gone) - known:
            # Either it is not in the journal any more, or it was opened meanwhile and is whole by now.
            await inbox.read_again(stream)
        return f"The notifier's projection was read again from {len(known)} streams; nothing was sent again."
    finally:
        await client.close()
        await pool.close()
