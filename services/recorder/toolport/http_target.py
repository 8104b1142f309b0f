"""Where a plain HTTP server may be: resolved once, connected to at that address alone, never where nobody allowed it."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from typing import Final

import httpx
import httpx2

from recorder.toolport.port import NotSent, ToolRefused, clause

_CONNECT_SECONDS: Final = 5.0
_USUAL_PORT: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """A server's URL, taken apart. *path* has no slash at its end."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> Target:
        """Raises `ToolRefused` for what is no plain http or https URL."""
        parsed = _parsed(url)
        if parsed.userinfo:
            raise ToolRefused("A URL names no user and no password; put them into headers as env:TAKEBACK_SECRET_….")
        if parsed.query or parsed.fragment:
            raise ToolRefused(f"{url} has a query or a fragment; those belong to the operations. Nothing was sent.")
        return cls._of(parsed)

    @classmethod
    def server_of(cls, url: str) -> Target:
        """Where the server of *url* is, whatever else the URL says; raises `ToolRefused` for no http or https URL."""
        return cls._of(_parsed(url))

    @classmethod
    def _of(cls, parsed: httpx.URL) -> Target:
        return cls(parsed.scheme, parsed.host, parsed.port or _USUAL_PORT[parsed.scheme], parsed.path.rstrip("/"))

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _USUAL_PORT[self.scheme] else f":{self.port}")


def origin_of(url: str) -> str:
    """Scheme, host and port of *url*. Raises `ToolRefused` for what is no http or https URL."""
    return Target.server_of(url).origin


def _parsed(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
        usable = parsed.scheme in ("http", "https") and parsed.host != "" and (parsed.port or 0) < 65_536
    except (httpx.InvalidURL, ValueError) as error:
        raise ToolRefused(f"{url!r} is no URL: {error}. Nothing was sent.") from error
    if not usable:
        raise ToolRefused(f"{url!r} is no http or https URL. Nothing was sent.")
    return parsed


def check_url(url: str) -> None:
    """Raises `ToolRefused` for what no request can be sent to."""
    try:
        host = httpx2.URL(url).host
    except (httpx2.InvalidURL, ValueError) as error:
        raise ToolRefused(f"{url!r} is no URL: {error}. Nothing was sent.") from error
    if not host:
        raise ToolRefused(f"{url!r} names no host. Nothing was sent.")


async def pinned_address(target: Target, *, allow_private: bool) -> str:
    """The one address that *target* is reached at from now on.

    Raises `NotSent` where the name is unknown, `ToolRefused` where an address of it is private and none may be.
    """
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError) as error:
        raise NotSent(f"{target.host} has no address: {clause(error)}. Nothing was sent.") from error
    addresses = [str(item[4][0]) for item in found]
    if not allow_private:
        for address in addresses:
            if not is_public(address):
                raise ToolRefused(
                    f"{target.host} is at {address}, a private address. Set TAKEBACK_HTTP_ALLOW_PRIVATE=1 on the recorders"
                    " to allow it. Nothing was sent."
                )
    return addresses[0]


class Pin:
    """The one public address that a server is reached at, looked up at the first use and again once it was let go."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._address: str | None = None

    async def address(self) -> str:
        """Raises `NotSent` and `ToolRefused`, see `pinned_address`."""
        if self._address is None:
            self._address = await pinned_address(self.target, allow_private=False)
        return self._address

    def let_go(self) -> None:
        """The server is connected to anew, or was not reached: it may be elsewhere by now."""
        self._address = None


def is_public(address: str) -> bool:
    """Whether *address* is anybody's on the internet: not private, local, shared, reserved, multicast, or one in disguise."""
    parsed = ipaddress.ip_address(address.split("%", 1)[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour or (parsed.teredo[1] if parsed.teredo else None)
        if inner is not None and not is_public(str(inner)):
            return False
        if parsed in ipaddress.IPv6Network("64:ff9b::/96"):
            return is_public(str(ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)))
    return parsed.is_global and not parsed.is_multicast


class PinnedTransport(httpx.AsyncBaseTransport):
    """Connects to *address*, whatever the URL's host resolves to by now; certificate and Host are the host's."""

    def __init__(self, target: Target, address: str) -> None:
        self._target = target
        self._address = address
        self._inner = httpx.AsyncHTTPTransport(
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=20), trust_env=False
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if (request.url.scheme, request.url.host) != (self._target.scheme, self._target.host):
            raise httpx.UnsupportedProtocol(f"{request.url.host} is not the registered server", request=request)
        request.extensions = {**request.extensions, "sni_hostname": self._target.host}
        request.url = request.url.copy_with(host=self._address)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()
