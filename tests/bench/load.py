"""Load: callers that each keep one HTTP connection and send the next request when the last one is answered."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Target:
    """One caller's request: where, as whom, and about which record."""

    url: str
    token: str
    record: str


@dataclass(frozen=True, slots=True)
class Measured:
    """Answers a second, and the median and the 99th percentile of their time in milliseconds."""

    rate: float
    p50: float
    p99: float


async def run(targets: Sequence[Target], seconds: float) -> Measured:
    """Every target's caller at work for *seconds*; raises RuntimeError with the first answer that is not a 200."""
    until = time.perf_counter() + seconds
    began = time.perf_counter()
    times = [taken for each in await asyncio.gather(*(_caller(t, until) for t in targets)) for taken in each]
    elapsed = time.perf_counter() - began
    times.sort()
    return Measured(len(times) / elapsed, times[len(times) // 2] * 1e3, times[int(len(times) * 0.99)] * 1e3)


_numbers = itertools.count()


async def _caller(target: Target, until: float) -> list[float]:
    parts = urlsplit(target.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    times: list[float] = []
    try:
        while (now := time.perf_counter()) < until:
            arguments = {"id": target.record, "n": next(_numbers)}
            body = json.dumps({"server": "bench", "operation": "touch", "arguments": arguments}).encode()
            writer.write(_request(parts.path, parts.netloc, target.token, body))
            await answered(reader)
            times.append(time.perf_counter() - now)
    finally:
        writer.close()
    return times


def _request(path: str, host: str, token: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def answered(reader: asyncio.StreamReader) -> bytes:
    """The body of the next answer; raises RuntimeError where it is not a 200."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
    body = await reader.readexactly(length)
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"{head.split(b' ', 2)[1].decode()}: {body[:500].decode(errors='replace')}")
    return body
