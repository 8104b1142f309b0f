"""What an owner sees of the deliveries and changes about them: the use cases behind the doors (N6, N7)."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import asyncpg
import httpx

from notifier.deliveries import chat, webhooks
from notifier.deliveries.ledger import Channel
from notifier.deliveries.targets import Target, Targets
from notifier.deliveries.ways import CHAT_TYPES
from notifier.feed import ALL
from notifier.reviews import Reviews
from takeback import outbound
from takeback.auth import Caller
from takeback.errors import Problem, human_required, invalid, not_authorised, not_found
from takeback.messages.deliveries import Delivery, Webhook, WebhookRequest
from takeback.messages.events import EVENT_DATA
from takeback.rpc import Rpc
from takeback.subjects import RPC_REFUSED

STATUSES = ("waiting", "accepted", "dead", "not_configured")
_TYPES = frozenset(EVENT_DATA) - {"entry.pending"}
_MAX_TARGETS = 50
_PAGE = 100
_RESOLVE_SECONDS = 3.0
_LIST = """
select * from deliveries where campaign = $1 and ($2::text is null or status = $2) and ($3::text is null or id < $3)
order by id desc limit $4
"""
_AGAIN = """
update deliveries set status = 'waiting', attempts = 0, due_at = clock_timestamp(), concluded_at = null
where campaign = $1 and status in ('dead', 'not_configured')
  and (id = $2 or batch = (select batch from deliveries where campaign = $1 and id = $2))
"""


class Office:
    """Owners only; each change by a person."""

    def __init__(
        self, pool: asyncpg.Pool, reviews: Reviews, rpc: Rpc, targets: Targets, *, allow_private: bool
    ) -> None:
        self._pool = pool
        self._reviews = reviews
        self._rpc = rpc
        self._targets = targets
        self._allow_private = allow_private

    async def set_webhook(self, campaign: str, name: str, caller: Caller, wanted: WebhookRequest) -> Webhook:
        """Sends *wanted* types to its URL from now on. The answer has the secret when it is new, as it is with a new URL."""
        await self._enter(campaign, caller, "set a webhook", changes=True)
        channel = await self._channel_of(wanted.url)
        _check_types(wanted.types, channel)
        known = await self._targets.find(campaign, name)
        if known is None and len(await self._targets.all(campaign)) >= _MAX_TARGETS:
            raise invalid(f"A campaign has at most {_MAX_TARGETS} webhooks; remove one first.")
        secret = secrets.token_bytes(webhooks.SECRET_BYTES)
        target = await self._targets.set(campaign, name, channel, wanted.url, wanted.types, secret, caller.sub)
        made = channel == "webhook" and target.secret == secret
        return await _shown(target, webhooks.shown(secret) if made else None)

    async def webhooks(self, campaign: str, caller: Caller) -> list[Webhook]:
        """The campaign's webhooks and chats, without their secrets."""
        await self._enter(campaign, caller, "list the webhooks")
        return [await _shown(target) for target in await self._targets.all(campaign)]

    async def remove_webhook(self, campaign: str, name: str, caller: Caller) -> None:
        """Sends nothing there any more; what still waits becomes a dead letter."""
        await self._enter(campaign, caller, "remove a webhook", changes=True)
        if not await self._targets.remove(campaign, name):
            raise not_found()

    async def deliveries(
        self, campaign: str, caller: Caller, status: str | None, cursor: str | None
    ) -> tuple[list[Delivery], str | None]:
        """A page of the ledger, the newest first, and the cursor of the next one."""
        await self._enter(campaign, caller, "list the deliveries")
        if status is not None and status not in STATUSES:
            raise invalid(f"A delivery's status is one of {', '.join(STATUSES)}.")
        rows = await self._pool.fetch(_LIST, campaign, status, cursor, _PAGE + 1)
        found = [_delivery(row) for row in rows[:_PAGE]]
        return found, found[-1].id if len(rows) > _PAGE else None

    async def send_again(self, campaign: str, delivery: str, caller: Caller) -> Delivery:
        """Makes a dead letter, with the digest that it is part of, due now: under the id that it had. One that waits stays."""
        await self._enter(campaign, caller, "send a delivery again", changes=True)
        row = await self._row(campaign, delivery)
        if row["status"] == "accepted":
            raise Problem(
                409,
                "already-accepted",
                "This delivery was accepted by its receiver. Nothing was changed.",
                delivery=delivery,
            )
        if row["channel"] != "email":
            target = await self._targets.find(campaign, row["target"])
            if target is None or target.disabled is not None:
                raise Problem(
                    409, "no-target", f"Nothing is sent to the webhook {row['target']} any more. Nothing was changed; set it "
                    "anew, then send the delivery again."
                )  # fmt: skip
        await self._pool.execute(_AGAIN, campaign, delivery)
        return _delivery(await self._row(campaign, delivery))

    async def _row(self, campaign: str, delivery: str) -> asyncpg.Record:
        row = await self._pool.fetchrow("select * from deliveries where campaign = $1 and id = $2", campaign, delivery)
        if row is None:
            raise not_found()
        return row

    async def _enter(self, campaign: str, caller: Caller, what: str, *, changes: bool = False) -> None:
        standing = await self._reviews.enter(campaign, caller)
        if changes and not caller.is_human:
            raise human_required(what)
        if standing != "owner":
            by = {"sub": caller.sub, "kind": caller.kind, "authority": None}
            await self._rpc.request(RPC_REFUSED, {"campaign": campaign, "by": by, "what": what})
            raise not_authorised(what)

    async def _channel_of(self, url: str) -> Channel:
        if url.split("://", 1)[0].lower() not in ("http", "https"):
            try:
                await asyncio.to_thread(chat.service_of, url, allow_private=self._allow_private)
            except chat.Unusable as error:
                raise invalid(f"url: {error}.") from error
            return "chat"
        await self._check_address(url)
        return "webhook"

    async def _check_address(self, url: str) -> None:
        """Tells early what an attempt would find out; a host that cannot be resolved now may be there later."""
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise invalid(f"url: {error}.") from error
        if not parsed.host or parsed.userinfo:
            raise invalid("url: a webhook's URL names a host, and no user or password.")
        if self._allow_private:
            return
        if parsed.scheme != "https":
            raise invalid("url: what is sent is readable to others over http; use https.")
        try:
            async with asyncio.timeout(_RESOLVE_SECONDS):
                await outbound.check(parsed.host, parsed.port or 443)
        except outbound.Forbidden as error:
            raise invalid(f"url: {error}") from error
        except (OSError, TimeoutError):
            return


def _check_types(types: list[str], channel: Channel) -> None:
    known = CHAT_TYPES.keys() if channel == "chat" else _TYPES
    if unknown := sorted(set(types) - set(known) - {ALL}):
        what = "A chat is told of" if channel == "chat" else "The types are"
        raise invalid(f"types: {', '.join(unknown)} cannot be subscribed to. {what} {', '.join(sorted(known))}, or *.")


async def _shown(target: Target, secret: str | None = None) -> Webhook:
    return Webhook(
        name=target.name,
        channel=target.channel,
        url=await asyncio.to_thread(chat.without_secrets, target.url) if target.channel == "chat" else target.url,
        types=target.types,
        secret=secret,
        disabled=target.disabled,
        created_at=target.created_at,
    )


def _delivery(row: Any) -> Delivery:
    return Delivery(
        id=row["id"],
        channel=row["channel"],
        target=row["target"],
        type=row["type"],
        status=row["status"],
        attempts=row["attempts"],
        error=row["error"],
        batch=row["batch"],
        created_at=row["created_at"],
        next_attempt_at=row["due_at"] if row["status"] == "waiting" else None,
        concluded_at=row["concluded_at"],
    )
