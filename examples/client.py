"""One caller of Takeback's HTTP API: an agent, a person or a job, each with a token of its own.

It does what every client should: a POST carries an idempotency key, and what may be tried again (503, or an answer that
was lost on the way) is tried again under the same key. So nothing is ever done twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx
import httpx_sse
import stamina

from takeback.ids import new_id

Answer = dict[str, Any]
WAIT_SECONDS = 30.0
BUSY = 503


class Refused(Exception):
    """Takeback refused a request: its RFC 9457 problem, with what was and was not changed."""

    def __init__(self, status: int, problem: Answer) -> None:
        super().__init__(f"{status} {problem.get('title', '')}: {problem.get('detail', '')}")
        self.status = status
        self.problem = problem

    @property
    def slug(self) -> str:
        """The last part of the problem's type, such as ``not-authorised``."""
        return str(self.problem.get("type", "")).rsplit("/", 1)[-1]


class NothingCame(Exception):
    """What was waited for did not come in half a minute. Whatever did happen is in the journal."""


class Caller:
    """What *sub* may ask of the stack at *url*; `sub` is whoever the token names. Close it, or use it in ``async with``."""

    def __init__(self, url: str, sub: str, token: str) -> None:
        self.sub = sub
        self._http = httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=httpx.Timeout(WAIT_SECONDS, connect=5)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def get(self, path: str) -> Answer:
        """The answer to a GET. Raises `Refused`, `NothingCame`."""
        return await self._ask("GET", path)

    async def post(self, path: str, body: Answer | None = None) -> Answer:
        """The answer to a POST. Raises `Refused`, `NothingCame`."""
        return await self._ask("POST", path, body or {}, {"Idempotency-Key": new_id("key")})

    async def put(self, path: str, body: Answer) -> Answer:
        """The answer to a PUT. Raises `Refused`, `NothingCame`."""
        return await self._ask("PUT", path, body)

    async def open_run(self, campaign: str, agent: str, *, model: str, principal: str) -> str:
        """Open a run of *agent* for *principal*; answers its id."""
        run = await self.post(
            f"/v1/campaigns/{campaign}/runs", {"agent": agent, "model": model, "principal": principal}
        )
        return str(run["id"])

    async def call(self, run: str, tool: str, arguments: Answer, **how: Any) -> Answer:
        """One tool call (*tool* is ``server/operation``); *how* are further members, such as ``interaction``.

        Answers ``{entry, result}``, or ``{entry, approval}`` where a person is asked first: see `settled`.
        """
        server, operation = tool.split("/")
        body = {"server": server, "operation": operation, "arguments": arguments, **how}
        return await self.post(f"/v1/runs/{run}/calls", body)

    async def settled(self, entry: str) -> Answer:
        """The entry once nobody is waited for any more: committed, failed, denied, expired or in doubt."""
        return await self.until(
            f"/v1/entries/{entry}", lambda found: found["status"] not in ("awaiting_approval", "pending")
        )

    async def entries(self, run: str) -> list[Answer]:
        """The entries of a run, in their order."""
        return await self._all(f"/v1/runs/{run}/entries")

    async def approvals(self, campaign: str) -> list[Answer]:
        """What waits for a person in the campaign."""
        return await self._all(f"/v1/campaigns/{campaign}/approvals?status=pending")

    async def decide_approval(self, approval: str, decision: str, reason: str = "") -> Answer:
        """Say approve or deny to a call that waits."""
        return await self.post(f"/v1/approvals/{approval}/decision", {"decision": decision, "reason": reason})

    async def plan(self, campaign: str, **target: Any) -> Answer:
        """Ask what it would mean to take back ``entries=[…]``, ``interaction=…`` or ``run=…``."""
        return await self.post(f"/v1/campaigns/{campaign}/plans", target)

    async def decide_plan(self, plan: Answer, decision: str = "approve", **choices: Any) -> Answer:
        """Decide exactly the plan that was read, and wait for its end; *choices* are leaveOut, override, fields, reason."""
        body = {"decision": decision, "digest": plan["digest"], **choices}
        await self.post(f"/v1/plans/{plan['id']}/decision?wait=20", body)
        moving = ("proposed", "approved", "executing")
        return await self.until(f"/v1/plans/{plan['id']}", lambda found: found["status"] not in moving)

    async def record(self, plan: str) -> Answer:
        """The Reversal Record of a plan that came to its end."""
        return await self.get(f"/v1/plans/{plan}/record")

    async def undo(self, campaign: str, interaction: str = "latest", **why: Any) -> Answer:
        """Take a whole interaction back with one call."""
        return await self.post(f"/v1/campaigns/{campaign}/interactions/{interaction}/undo", why)

    async def until(self, path: str, happened: Callable[[Answer], bool]) -> Answer:
        """What stands at *path* as soon as *happened* says yes. Raises `NothingCame`."""
        until = time.monotonic() + WAIT_SECONDS
        while not happened(found := await self.get(path)):
            if time.monotonic() > until:
                raise NothingCame(f"{path} still says {found.get('status', found)} after {WAIT_SECONDS:.0f} seconds.")
            await asyncio.sleep(0.05)
        return found

    @asynccontextmanager
    async def listening(self, campaign: str) -> AsyncIterator[Heard]:
        """A client of the campaign's live stream, connected when the block begins."""
        async with httpx_sse.aconnect_sse(
            self._http, "GET", f"/v1/campaigns/{campaign}/stream", timeout=httpx.Timeout(5, read=None)
        ) as source:
            if source.response.status_code != httpx.codes.OK:
                await source.response.aread()
                _answer(source.response)
            heard = Heard()
            task = asyncio.create_task(heard.read(source))
            try:
                yield heard
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _ask(
        self, method: str, path: str, body: Answer | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        try:
            async for attempt in stamina.retry_context(
                on=_may_be_tried_again, attempts=None, timeout=WAIT_SECONDS, wait_initial=0.05, wait_max=1
            ):
                with attempt:
                    return _answer(await self._http.request(method, path, json=body, headers=headers))
        except httpx.TransportError as error:
            raise NothingCame(f"{method} {path} got no answer: {type(error).__name__} {error}.") from error
        raise AssertionError("unreachable")

    async def _all(self, path: str) -> list[Answer]:
        items: list[Answer] = []
        following = path
        while True:
            page = await self.get(following)
            items += page["items"]
            if not page.get("next"):
                return items
            following = f"{path}{'&' if '?' in path else '?'}cursor={page['next']}"


class Heard:
    """What one client of the live stream has heard so far, in order: (short type, CloudEvent)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Answer]] = []
        self._more = asyncio.Condition()

    async def read(self, source: httpx_sse.EventSource) -> None:
        """Take in events until cancelled."""
        async for event in source.aiter_sse():
            async with self._more:
                self.events.append((event.event, event.json() if event.data else {}))
                self._more.notify_all()

    async def first(self, kind: str, matches: Callable[[Answer], bool] = lambda _: True) -> Answer:
        """The data of the first event of short type *kind* that *matches*; waits for it. Raises `NothingCame`."""
        try:
            async with asyncio.timeout(WAIT_SECONDS), self._more:
                while True:
                    for heard, event in self.events:
                        if heard == kind and matches(event["data"]):
                            return dict(event["data"])
                    await self._more.wait()
        except TimeoutError:
            had = ", ".join(dict.fromkeys(heard for heard, _ in self.events)) or "nothing"
            raise NothingCame(f"No {kind} was heard in {WAIT_SECONDS:.0f} seconds, only {had}.") from None


def _may_be_tried_again(error: Exception) -> bool:
    return isinstance(error, httpx.TransportError) or (isinstance(error, Refused) and error.status == BUSY)


def _answer(response: httpx.Response) -> Answer:
    if response.is_success:
        return dict(response.json()) if response.content else {}
    try:
        problem = response.json()
    except ValueError:
        problem = {"title": response.reason_phrase, "detail": response.text[:500]}
    raise Refused(response.status_code, problem)
