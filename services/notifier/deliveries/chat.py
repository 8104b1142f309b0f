"""Chat and push over apprise: a message in words to a room that a campaign's owner has named (N7).

apprise reaches the services by libraries that know no guard, so only those with hosts of their own are taken; those that a
person hosts (and whose address they type) need `TAKEBACK_WEBHOOK_ALLOW_PRIVATE`. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import apprise

from notifier.deliveries import letters
from notifier.deliveries.ledger import Parcel
from notifier.deliveries.letters import News
from notifier.deliveries.verdict import ACCEPTED, Verdict
from takeback.errors import words_of

SERVICES = frozenset({
    "discord", "gchat", "join", "line", "opsgenie", "pagerduty", "pbul", "pover", "prowl", "signl4", "slack", "tgram",
    "twist", "webex", "wxteams", "zulip",
})  # fmt: skip
"""apprise's schemes of services that have their own hosts."""
SELF_HOSTED = frozenset({
    "gotify", "gotifys", "json", "jsons", "matrix", "matrixs", "mmost", "mmosts", "ntfy", "ntfys", "rocket", "rockets",
    "workflow", "workflows",
})  # fmt: skip
_THREADS = 16
_ASSET = apprise.AppriseAsset(
    app_id="Takeback", app_desc="Takeback", app_url="", http_redirects=False, async_mode=False, secure_logging=True
)


class Unusable(ValueError):
    """The URL is none that a chat can be reached by; its message says why."""


class ChatSender:
    """Sends in threads of its own: apprise blocks."""

    def __init__(self, *, allow_private: bool, deadline_seconds: float) -> None:
        self._allow_private = allow_private
        self._deadline_seconds = deadline_seconds
        self._threads = ThreadPoolExecutor(_THREADS, "takeback chat")

    async def send(self, parcel: Parcel, url: str, console: str, campaign: str, news: News, now: datetime) -> Verdict:
        """One attempt. A chat drops no repeats, so a message that may have arrived before says so."""
        letter = letters.compose(campaign, [news], console, now)
        text = letters.plain(letter)
        if parcel.attempts > 1:
            text += f"\n\n(Sent again as {parcel.id}: an earlier attempt may have arrived.)"
        try:
            async with asyncio.timeout(self._deadline_seconds):
                return await asyncio.get_running_loop().run_in_executor(
                    self._threads, self._notify, url, letter.subject, text
                )
        except TimeoutError:
            return Verdict("retry", f"no answer within {self._deadline_seconds:g} s")

    def _notify(self, url: str, title: str, text: str) -> Verdict:
        try:
            service = service_of(url, allow_private=self._allow_private)
        except Unusable as error:
            return Verdict("dead", str(error))
        service.socket_connect_timeout = service.socket_read_timeout = self._deadline_seconds
        try:
            sent = service.notify(text, title=title, body_format="text")
        except (OSError, ValueError, TypeError) as error:
            return Verdict("retry", f"{service.service_name}: {words_of(error)}")
        return ACCEPTED if sent else Verdict("retry", f"{service.service_name} did not take it")

    def close(self) -> None:
        """Waits for nobody."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def service_of(url: str, *, allow_private: bool) -> Any:
    """apprise's way to *url*; raises `Unusable` for what may or can not be reached. Blocks: the first call loads apprise."""
    scheme = url.split("://", 1)[0].lower()
    allowed = SERVICES | SELF_HOSTED if allow_private else SERVICES | {"ntfy", "ntfys"}
    if scheme not in allowed:
        hint = "; a service that you host needs TAKEBACK_WEBHOOK_ALLOW_PRIVATE=1" if scheme in SELF_HOSTED else ""
        raise Unusable(f"a URL begins with https:// or with one of {', '.join(sorted(allowed))}{hint}")
    service = apprise.Apprise.instantiate(url, asset=_ASSET, suppress_exceptions=True)
    if service is None:
        raise Unusable(f"this is no URL of {scheme} as apprise knows it")
    if scheme in ("ntfy", "ntfys") and not allow_private and getattr(service, "mode", None) != "cloud":
        raise Unusable("an ntfy server that you host needs TAKEBACK_WEBHOOK_ALLOW_PRIVATE=1")
    return service


def without_secrets(url: str) -> str:
    """*url* as a list may show it. Blocks like `service_of`."""
    service: Any = apprise.Apprise.instantiate(url, asset=_ASSET, suppress_exceptions=True)
    return str(service.url(privacy=True)) if service is not None else url.split("://", 1)[0] + "://…"
