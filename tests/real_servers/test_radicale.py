"""Radicale behind the shipped manifest: a calendar over plain HTTP that enforces If-Match (E3, G8)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from tests.real_servers.bench import Bench
from tests.real_servers.conftest import Opened
from tests.waiting import WAIT_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bench(opened: Opened, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return await opened("radicale", tmp_path_factory.mktemp("radicale"))


@pytest_asyncio.fixture(loop_scope="session")
async def calendar(bench: Bench) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody else at the same calendar, with one event in it."""
    async with httpx.AsyncClient(base_url=bench.config["url"], timeout=WAIT_SECONDS) as http:
        for name in ("standup", "new"):
            await http.delete(f"/{name}.ics")
        await _put(http, "standup", "Stand-up, in room 5")
        yield http


def _event(name: str, summary: str) -> str:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//lab//EN", "BEGIN:VEVENT", f"UID:{name}"]
    lines += ["DTSTAMP:20260101T000000Z", "DTSTART:20260102T090000Z", f"SUMMARY:{summary}"]
    return "\r\n".join([*lines, "END:VEVENT", "END:VCALENDAR", ""])


async def _put(http: httpx.AsyncClient, name: str, summary: str) -> None:
    headers = {"Content-Type": "text/calendar"}
    (await http.put(f"/{name}.ics", content=_event(name, summary), headers=headers)).raise_for_status()


async def _seen(http: httpx.AsyncClient, name: str = "standup") -> tuple[int, bytes, str | None]:
    answer = await http.get(f"/{name}.ics")
    return answer.status_code, answer.content, answer.headers.get("etag")


async def test_a_changed_event_comes_back_byte_for_byte_once(bench: Bench, calendar: httpx.AsyncClient) -> None:
    """E3: put_event; the same ETag again; undo twice changes nothing."""
    before = await _seen(calendar)
    entry = await bench.alone("put_event", name="standup", ical=_event("standup", "rubbish"))
    assert b"rubbish" in (await _seen(calendar))[1]
    assert await bench.back(entry) == ["reverted"]
    assert await _seen(calendar) == before
    assert await bench.back(entry) == ["already_reverted"]
    assert await _seen(calendar) == before


async def test_a_deleted_event_and_a_new_one_come_back_in_one_plan(bench: Bench, calendar: httpx.AsyncClient) -> None:
    """E3: delete_event, put_event."""
    before = await _seen(calendar)
    made = await bench.alone("put_event", name="new", ical=_event("new", "draft"))
    edited = await bench.call("put_event", name="new", ical=_event("new", "draft two"))
    gone = await bench.call("delete_event", name="standup")
    plan = await bench.plan(made, edited, gone)
    assert "may have been reminded" in str(plan["sideEffects"])
    assert set((await bench.approve(plan)).values()) == {"reverted"}
    assert await _seen(calendar) == before
    assert (await _seen(calendar, "new"))[0] == 404


@pytest.mark.parametrize("operation", ["change", "make", "delete"])
async def test_what_somebody_else_did_in_between_is_a_conflict_and_survives(
    bench: Bench, calendar: httpx.AsyncClient, operation: str
) -> None:
    """G8."""
    name = "new" if operation == "make" else "standup"
    if operation == "delete":
        entry = await bench.alone("delete_event", name=name)
    else:
        entry = await bench.alone("put_event", name=name, ical=_event(name, "rubbish"))
    await _put(calendar, name, "by hand")
    stood = await _seen(calendar, name)
    assert await bench.back(entry) == ["conflict"]
    assert await _seen(calendar, name) == stood


async def test_a_write_that_the_server_refuses_for_its_etag_is_a_failure(
    bench: Bench, calendar: httpx.AsyncClient
) -> None:
    """E3: 412."""
    refused = await bench.ask("put_event", name="standup", ical=_event("standup", "x"), ifMatch='"stale"')
    assert (refused.status_code, refused.json()["title"]) == (502, "tool failed")
    listed = await bench.ask("list_events")
    assert "standup.ics" in listed.text
