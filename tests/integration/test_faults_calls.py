"""Crashes and lost servers on the way of a call: nothing is forwarded unrecorded, done twice, or forgotten."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final, Literal

import httpx
import pytest
import pytest_asyncio

from recorder.failpoints import Failpoint
from takeback.database import migrate
from tests.forking import Forked
from tests.integration.calls_lab import Campaign, Lab, shared_lab
from tests.recorder_lab import Client, lab_environ, recorder_lab, serve
from tests.servers import Backend, Databases, NatsServer, Server
from tests.waiting import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.faults]

ROUNDS = int(os.environ.get("TAKEBACK_FAULT_ROUNDS", "1"))
IN_THE_TOOL: Final = "in-the-tool"
"""No failpoint: the test kills the recorder when the tool server has the request."""
ENDINGS: dict[Failpoint | Literal["in-the-tool"], tuple[str | None, int]] = {
    "before-intent": (None, 0),
    "after-intent": ("failed", 0),
    IN_THE_TOOL: ("committed", 1),
    "after-effect": ("committed", 1),
    "before-conclusion": ("committed", 1),
    "before-publish": ("committed", 1),
}
"""How the entry ends that a killed recorder was at work on, and how often its effect is in the tool server's own log."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(
    servers: Backend, migrated_databases: Databases, valkey_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Lab]:
    folder: Path = tmp_path_factory.mktemp("faults")
    async with shared_lab(servers, migrated_databases, valkey_server.url, folder) as lab:
        yield lab


@pytest_asyncio.fixture(loop_scope="module")
async def campaign(lab: Lab) -> Campaign:
    return await lab.campaign(await lab.deals())


@pytest.mark.parametrize("round_", range(ROUNDS))
@pytest.mark.parametrize("where", ENDINGS)
async def test_a_recorder_killed_in_a_call_leaves_one_entry_whose_effect_happened_at_most_once(
    campaign: Campaign, where: Failpoint | Literal["in-the-tool"], round_: int
) -> None:
    """J2, J7: SIGKILL anywhere; another replica settles what the dead one left."""
    environ = {**campaign.lab.environ, "TAKEBACK_FORWARD_DEADLINE_SECONDS": "1.5"}
    if where == IN_THE_TOOL:
        campaign.deals.behave("set_stage", "hang")
    else:
        environ |= {"TAKEBACK_FAILPOINT": where}
    async with Forked(serve, environ) as process:
        async with httpx.AsyncClient(base_url=process.said, timeout=10) as http:
            dying = Campaign(_through(campaign.lab, http), campaign.id, campaign.run, campaign.deals)
            call = asyncio.ensure_future(dying.set_stage("won"))
            if where == IN_THE_TOOL:
                await campaign.deals.arrived.wait()
                await process.end(signal.SIGKILL)
                campaign.deals.release.set()
            with pytest.raises(httpx.TransportError):
                await call
        assert await process.ended() == -signal.SIGKILL
    status, effects = ENDINGS[where]
    if status is None:
        assert await campaign.entries() == []
    else:
        entry = (await campaign.entries())[0]
        settled = await campaign.status_is(entry["id"], "committed", "failed")
        assert settled["status"] == status
        assert campaign.deals.log[entry["id"]] == effects
    assert campaign.deals.effects == effects
    assert (await campaign.set_stage("lost")).status_code == 200
    published = [kind for kind in await campaign.record_types() if kind in ("entry.committed", "entry.failed")]
    await eventually(lambda: _nothing_unpublished(campaign))
    assert len(published) == (1 if status is None else 2)


async def test_a_lock_that_redis_forgot_lets_no_entry_carry_a_state_that_was_already_replaced(
    lab: Lab, start_valkey: Callable[[], Awaitable[Server]]
) -> None:
    """J19: Redis restarts empty between lock and intent; the fence sends the first holder back to look again."""
    valkey = await start_valkey()
    environ = {**lab.environ, "TAKEBACK_REDIS_URL": valkey.url}
    deals = await lab.deals()
    async with recorder_lab(environ) as one, recorder_lab(environ) as other:
        first = await _campaign_on(lab, one.app, deals)
        second = Campaign(_through(lab, _asgi(other.app)), first.id, first.run, deals)
        held = deals.observe_when = asyncio.Event()
        slow = asyncio.ensure_future(first.set_stage("slow"))
        await deals.observing.wait()
        await valkey.stop()
        await valkey.start()
        quick = await second.set_stage("quick")
        assert quick.status_code == 200, quick.text
        held.set()
        assert (await slow).status_code == 200
        entry = await first.entry((await slow).json()["entry"]["id"])
        assert entry["snapshot"]["version"] == quick.json()["entry"]["effect"]["version"]
        assert entry["snapshot"]["fields"] == {"stage": "quick"}


async def test_without_redis_no_write_is_forwarded_and_with_it_back_the_next_one_is(
    lab: Lab, start_valkey: Callable[[], Awaitable[Server]]
) -> None:
    """J19: 503, and nothing stored for the caller's key."""
    valkey = await start_valkey()
    deals = await lab.deals()
    async with recorder_lab({**lab.environ, "TAKEBACK_REDIS_URL": valkey.url}) as recorder:
        campaign = await _campaign_on(lab, recorder.app, deals)
        assert (await campaign.set_stage("one")).status_code == 200
        await valkey.stop()
        refused = await campaign.set_stage("two", idempotency_key="k")
        assert (refused.status_code, refused.json()["title"]) == (503, "campaign busy")
        assert (await campaign.call("read_deal", {"dealId": "d1"})).status_code == 200
        assert deals.deals["d1"]["fields"] == {"stage": "one"}
        await valkey.start()
        assert (await campaign.set_stage("two", idempotency_key="k")).status_code == 200


async def test_without_its_journal_a_call_is_not_forwarded_and_an_outcome_is_written_late(
    servers: Backend,
    valkey_server: Server,
    start_postgres: Callable[[], Awaitable[Server]],
    start_nats: Callable[[], Awaitable[NatsServer]],
    tmp_path: Path,
) -> None:
    """J3: fail-closed before the tool runs; J7: what ran while the journal was away is neither lost nor run again."""
    postgres, nats = await start_postgres(), await start_nats()
    await migrate(postgres.url)
    environ = lab_environ(postgres.url, nats.url, valkey_server.url, tmp_path)
    async with recorder_lab(environ) as recorder:
        lab = Lab(Client(_asgi(recorder.app), tmp_path / "keys"), environ, postgres.url, nats.tools_url, recorder)
        async with lab.closing:
            deals = await lab.deals()
            campaign, other = await lab.campaign(deals), await lab.campaign(deals)
            deals.behave("set_stage", "hang")
            call = asyncio.ensure_future(campaign.set_stage("won"))
            await deals.arrived.wait()
            await postgres.kill()
            refused = await other.set_stage("lost", "d2")
            assert (refused.status_code, refused.json()["title"]) == (503, "journal unavailable")
            deals.release.set()
            doubtful = await call
            assert (doubtful.status_code, doubtful.json()["title"]) == (504, "in doubt"), doubtful.text
            assert len(deals.calls) == 1
            await postgres.start()
            entry = doubtful.json()["entry"]["id"]
            assert (await campaign.status_is(entry, "committed"))["effect"]["version"] == "v1"
            assert deals.log[entry] == 1


def _asgi(app: object) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=transport, base_url="http://recorder", timeout=30)


def _through(lab: Lab, http: httpx.AsyncClient) -> Lab:
    """The same laboratory, spoken to through another recorder."""
    keys = Path(lab.environ["TAKEBACK_KEYS_DIR"])
    return Lab(Client(http, keys), lab.environ, lab.admin_url, lab.tools_url, lab.recorder, lab.closing)


async def _campaign_on(lab: Lab, app: object, deals: object) -> Campaign:
    return await _through(lab, _asgi(app)).campaign(deals)  # type: ignore[arg-type]


async def _nothing_unpublished(campaign: Campaign) -> bool:
    rows = await campaign.lab.sql("select id from recorder.outbox where stream = $1", campaign.run)
    return not rows
