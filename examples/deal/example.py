"""The company of deal D-881 as it joins a running installation: its campaign, its applications, its tool servers."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import httpx

from examples.deal.calendar import calendar_server, posting_letters
from examples.deal.capacity import capacity_server
from examples.deal.company import prepare
from examples.deal.crm import crm_application, crm_server
from examples.deal.forecast import forecast_server
from examples.deal.mail import mail_server
from examples.deal.memory import memory_server
from examples.deal.payments import payments_server
from examples.deal.post import Post, mail_sink
from examples.hosting import serving
from examples.opening import NOTES, CampaignPlan, open_campaign, pool, read_notes, register, write_notes
from takeback.database import driver_url
from takeback.example import Guide, Installation
from takeback.toolserver import ToolServer

OWNER = "dana"
PEOPLE = ("ines", "priya", "sam", "teo")
SALES, FORECAST, CAPACITY = "sales-agent", "forecast-job", "capacity-agent"
SECRET = "TAKEBACK_SECRET_EXAMPLES"  # noqa: S105  a variable's name

PLAN = CampaignPlan(
    key="deal",
    name="Acme sales",
    owner=OWNER,
    members=dict.fromkeys(PEOPLE, "member"),
    agents={
        SALES: {
            "memory": "yes",
            "operations": [
                *("crm/get_deal", "crm/update_deal", "crm/update_notes", "calendar/create_meeting", "mail/send_mail"),
                *("payments/get_order", "payments/refund", "memory/recall", "memory/remember"),
            ],
        },
        FORECAST: {"memory": "yes", "operations": ["forecast/weigh_deals", "crm/get_deal"]},
        CAPACITY: {"memory": "unknown", "operations": ["capacity/book_team", "crm/get_deal"]},
    },
)


@asynccontextmanager
async def acme(installation: Installation) -> AsyncIterator[Guide]:
    """Entry point of group `takeback.examples`: the company's applications and tool servers, until the context ends."""
    campaign = await open_campaign(installation, PLAN)
    connection = await asyncpg.connect(driver_url(installation.urls.postgres))
    try:
        await prepare(connection)
    finally:
        await connection.close()
    async with AsyncExitStack() as running:
        smtp, mailbox = installation.environ.get("TAKEBACK_SMTP_URL", ""), None
        if not smtp:
            mailbox = str(installation.folder.path / "mail")
            smtp = await running.enter_async_context(mail_sink(Path(mailbox)))
        servers, crm = await _applications(installation, Post(smtp), running)
        await register(installation, PLAN, await _served(servers, installation.environ[SECRET], running))
        write_notes(installation.folder.path, {**crm, "mailbox": mailbox})
        running.callback(write_notes, installation.folder.path, {"crm": None, "mailbox": None})
        yield _guide(installation, campaign, crm["crm"], mailbox or "sent over TAKEBACK_SMTP_URL")


async def _applications(
    installation: Installation, post: Post, running: AsyncExitStack
) -> tuple[list[ToolServer], dict[str, str]]:
    """The tool server of each application, and where people reach the CRM."""
    schemas = ("crm", "calendar", "payments", "mail", "capacity", "memory")
    pools = {name: await running.enter_async_context(pool(installation, name)) for name in schemas}
    token = read_notes(installation.folder.path).get("crmToken") or secrets.token_urlsafe(24)
    [crm] = await running.enter_async_context(serving(crm_application(pools["crm"], token)))
    people = await running.enter_async_context(
        httpx.AsyncClient(base_url=crm, headers={"Authorization": f"Bearer {token}"})
    )
    await running.enter_async_context(posting_letters(pools["calendar"], post))
    servers = [
        crm_server(pools["crm"]),
        calendar_server(pools["calendar"]),
        payments_server(pools["payments"]),
        mail_server(pools["mail"], post),
        capacity_server(pools["capacity"]),
        memory_server(pools["memory"]),
        forecast_server(pools["crm"], people),
    ]
    return servers, {"crm": crm, "crmToken": token}


async def _served(servers: list[ToolServer], secret: str, running: AsyncExitStack) -> Mapping[str, dict[str, object]]:
    """Each tool server on a port of its own; how the recorder reaches it, with the secret that only the recorder has."""
    urls = await running.enter_async_context(serving(*(server.http_app(secret=secret) for server in servers)))
    headers = {"Authorization": f"Bearer env:{SECRET}"}
    return {
        server.name: {"transport": "mcp", "url": f"{url}/mcp", "headers": headers}
        for server, url in zip(servers, urls, strict=True)
    }


def _guide(installation: Installation, campaign: str, crm: str, mail: str) -> Guide:
    return Guide(
        title=PLAN.name,
        look={
            "campaign": f"{installation.urls.http}/v1/campaigns/{campaign}",
            "live stream": f"{installation.urls.http}/v1/campaigns/{campaign}/stream",
            "CRM": f"{crm}/deals  (bearer: crmToken in {installation.folder.path / NOTES})",
            "delivered mail": mail,
        },
        tokens={f"{OWNER} (owner)": installation.token(OWNER), "sam": installation.token("sam")},
    )
