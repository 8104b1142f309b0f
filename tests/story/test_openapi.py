"""What the doors answer is what `schemas/openapi.yaml` says, on the running stack, from a campaign's opening to a reversal."""

import re
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import yaml

from examples.agents.sales import SalesAgent
from examples.deal.example import OWNER, SALES
from examples.demo.cast import deal_cast
from examples.demo.stage import Stage
from takeback.example import Installation
from tests.story.test_subscriber import subscribing

OPENAPI = Path(__file__).parents[2] / "schemas" / "openapi.yaml"


class Visitor:
    """Asks, and holds each answer against the document; `asked` are the doors that were tried."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._document = yaml.safe_load(OPENAPI.read_text())
        self.asked: set[tuple[str, str]] = set()

    async def ask(self, method: str, path: str, body: Any = None, *, status: int | None = None) -> Any:
        answer = await self._http.request(method, path, json=body)
        bare = path.partition("?")[0]
        template = next(p for p in self._document["paths"] if re.fullmatch(re.sub(r"{\w+}", "[^/]+", p), bare))
        operation = self._document["paths"][template][method.lower()]
        self.asked.add((method, template))
        if body is not None:
            self._hold(operation["requestBody"]["content"]["application/json"]["schema"], body)
        told = operation["responses"].get(str(answer.status_code), operation["responses"]["default"])
        if "$ref" in told:
            told = self._document["components"]["responses"][told["$ref"].rsplit("/", 1)[1]]
        assert status is None or answer.status_code == status, answer.text
        if not (content := told.get("content")):
            assert not answer.content
            return None
        media = answer.headers["content-type"].split(";")[0]
        assert media in content, (method, path, answer.status_code, media, answer.text[:300])
        if media.endswith(("/json", "+json")):
            self._hold(content[media]["schema"], answer.json())
            return answer.json()
        return answer.text

    def _hold(self, schema: dict[str, Any], value: Any) -> None:
        document = {**schema, "components": self._document["components"]}
        wrong = [f"{e.instance_path}: {e.message}" for e in jsonschema_rs.iter_errors(document, value)]
        assert wrong == [], (schema, wrong)


async def test_every_answer_of_a_reversal_is_as_the_document_says(stage: Stage, installation: Installation) -> None:
    """Issue 2, item 10: OpenAPI for the doors and JSON Schema for the events, both held against the running services."""
    cast = deal_cast(815)
    company, deal = await stage.company(), stage.campaign("deal")
    await company.enter_deal(
        cast.deal, customer=cast.customer, stage="Proposal", amount=cast.amount, currency=cast.currency
    )
    headers = {"Authorization": f"Bearer {installation.token(OWNER, 'human')}"}
    async with (
        httpx.AsyncClient(base_url=installation.urls.http, headers=headers, timeout=30) as http,
        subscribing(installation.urls.nats) as (subscriber, _),
    ):
        owner = Visitor(http)
        await _administer(owner)
        agent = await SalesAgent.begin(await stage.seat(SALES, "agent"), deal, cast.seller)
        won = await agent.win(cast.deal, "kick-off")
        asked = await agent.welcome(cast.address, cast.customer)
        await owner.ask("GET", f"/v1/campaigns/{deal}/approvals?status=pending", status=200)
        await owner.ask("GET", f"/v1/approvals/{asked['approval']}", status=200)
        refusal = {"decision": "deny", "reason": "nobody signed", "category": "hallucinated"}
        await owner.ask("POST", f"/v1/approvals/{asked['approval']}/decision", refusal, status=200)
        for path in (
            f"/v1/campaigns/{deal}", f"/v1/campaigns/{deal}/servers/crm", f"/v1/campaigns/{deal}/policy",
            f"/v1/campaigns/{deal}/security-log", f"/v1/runs/{agent.run}", f"/v1/runs/{agent.run}/entries",
            f"/v1/runs/{agent.run}/graph", f"/v1/runs/{agent.run}/review", f"/v1/entries/{won['id']}",
        ):  # fmt: skip
            await owner.ask("GET", path, status=200)
        await owner.ask("POST", f"/v1/runs/{agent.run}/pause", status=200)
        await owner.ask("POST", f"/v1/runs/{agent.run}/resume", status=200)
        plan = await owner.ask("POST", f"/v1/campaigns/{deal}/plans", {"run": agent.run}, status=201)
        decision = {"decision": "approve", "digest": plan["digest"], "reason": "nobody signed"}
        await owner.ask("POST", f"/v1/plans/{plan['id']}/decision?wait=20", decision, status=200)
        await owner.ask("GET", f"/v1/plans/{plan['id']}", status=200)
        await owner.ask("GET", f"/v1/plans/{plan['id']}/record", status=200)
        await owner.ask("POST", f"/v1/runs/{agent.run}/close", status=200)
        await owner.ask("GET", f"/v1/runs/{agent.run}/record", status=200)
        await owner.ask("POST", f"/v1/runs/{agent.run}/review/acknowledgement", {}, status=201)
        await owner.ask("POST", f"/v1/campaigns/{deal}/broadcasts", {"payload": {"say": "sorry"}}, status=201)
        await owner.ask("POST", "/v1/tickets", status=201)
        await owner.ask("GET", "/v1/runs/run_none/review", status=404)
        await owner.ask("POST", f"/v1/campaigns/{deal}/plans", {"run": "run_none", "entries": ["x"]}, status=422)
        for kind in (
            "review.ready", "review.acknowledged", "broadcast.sent", "reversal.completed", "policy.changed",
            "approval.requested", "approval.decided", "entry.denied", "run.paused", "calendar.changed",
        ):  # fmt: skip
            await subscriber.until(kind)
    assert subscriber.wrong == []


async def _administer(owner: Visitor) -> None:
    """A campaign of one's own, with everything that can be set in it."""
    campaign = (await owner.ask("POST", "/v1/campaigns", {"name": "Schemas", "serialize": "run"}, status=201))["id"]
    base = f"/v1/campaigns/{campaign}"
    await owner.ask("PUT", f"{base}/members/ann", {"role": "approver", "email": "ann@example.org"}, status=200)
    await owner.ask("PUT", f"{base}/agents/bot", {"memory": "yes", "operations": ["crm/read"]}, status=200)
    await owner.ask("PUT", f"{base}/policy", {"operations": {"crm/write": "ask"}, "minWindowSeconds": 60}, status=200)
    duty = {"zone": "Europe/Berlin", "weekly": {"mon": [["09:00", "17:00"]]}}
    await owner.ask("PUT", f"{base}/calendars/ann", duty, status=200)
    await owner.ask("GET", base, status=200)
    await owner.ask("GET", f"{base}/record", status=200)
    await owner.ask("DELETE", f"{base}/members/ann", status=204)
