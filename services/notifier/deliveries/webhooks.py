"""Webhooks: an event posted as it is, signed after Standard Webhooks, to an address that a campaign's owner has named (N6, N7).

The receiver drops a repeat by `webhook-id`, and knows by `webhook-signature` that it comes from here.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from notifier.deliveries.ledger import Parcel
from notifier.deliveries.targets import Target
from notifier.deliveries.verdict import ACCEPTED, Verdict
from takeback.errors import words_of
from takeback.outbound import Forbidden

SECRET_BYTES = 32
_MEDIA = "application/cloudevents+json; charset=utf-8"
_MAX_ANSWER_BYTES = 65_536
_MAX_WAIT_SECONDS = 86_400.0


class WebhookSender:
    """Posts over *client*, which is guarded (`takeback.outbound`)."""

    def __init__(self, client: httpx.AsyncClient, deadline_seconds: float) -> None:
        self._client = client
        self._deadline_seconds = deadline_seconds

    async def send(self, parcel: Parcel, target: Target) -> Verdict:
        """One attempt. Any 2xx counts; 410 says that nothing is wanted any more; a redirect is not followed."""
        body = parcel.deliveries[0].payload
        at = int(time.time())
        headers = {
            "content-type": _MEDIA,
            "user-agent": "takeback",
            "webhook-id": parcel.id,
            "webhook-timestamp": str(at),
            "webhook-signature": signature(target.secret, parcel.id, at, body),
        }
        try:
            async with (
                asyncio.timeout(self._deadline_seconds),
                self._client.stream("POST", target.url, content=body, headers=headers) as response,
            ):
                await _read_some(response)
        except TimeoutError:
            return Verdict("retry", f"no answer within {self._deadline_seconds:g} s")
        except Forbidden as error:
            return Verdict("dead", str(error))
        except httpx.InvalidURL as error:
            return Verdict("dead", f"the URL cannot be used: {error}")
        except (httpx.HTTPError, OSError) as error:
            return Verdict("retry", words_of(error))
        return _verdict(response)


def signature(secret: bytes, delivery: str, at: int, body: bytes) -> str:
    """The `webhook-signature` of *body*, sent as *delivery* at *at* (Unix seconds)."""
    digest = hmac.digest(secret, f"{delivery}.{at}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(digest).decode()


def shown(secret: bytes) -> str:
    """The secret as Standard Webhooks' libraries take it."""
    return "whsec_" + base64.b64encode(secret).decode()


def _verdict(response: httpx.Response) -> Verdict:
    status = response.status_code
    if response.is_success:
        return ACCEPTED
    if status == httpx.codes.GONE:
        return Verdict("gone", "it answered 410: it wants nothing any more")
    if response.is_redirect:
        return Verdict("retry", f"it answered {status}: a redirect is not followed, name the address itself")
    return Verdict("retry", f"it answered {status}", _asked_seconds(response.headers.get("retry-after")))


def _asked_seconds(retry_after: str | None) -> float:
    """What a Retry-After header asks for, a day at most (RFC 9110)."""
    if retry_after is None:
        return 0.0
    try:
        seconds = (
            float(retry_after)
            if retry_after.isdigit()
            else (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds()
        )
    except (ValueError, TypeError):
        return 0.0
    return min(max(seconds, 0.0), _MAX_WAIT_SECONDS)


async def _read_some(response: httpx.Response) -> None:
    """Reads the answer, so that the connection can be kept; of a long one not more than nobody needs."""
    size = 0
    async for chunk in response.aiter_raw():
        size += len(chunk)
        if size > _MAX_ANSWER_BYTES:
            return
