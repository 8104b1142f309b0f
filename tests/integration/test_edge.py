"""One door for several services sends each request to the one that serves its path."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from takeback.edge import Edge
from takeback.web import create_app


@dataclass
class Stub:
    name: str
    app: FastAPI = field(init=False)
    wrong: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.app = create_app(self.name, self.not_ready)

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    async def not_ready(self) -> dict[str, str]:
        return self.wrong


@pytest.fixture
def services() -> list[Stub]:
    recorder, planner = Stub("recorder"), Stub("planner")
    router = APIRouter(prefix="/v1")

    @router.get("/runs/{run}")
    async def run(run: str) -> str:
        return f"recorder {run}"

    @router.get("/runs/{run}/graph")
    async def graph(run: str) -> str:
        return f"planner {run}"

    recorder.app.add_api_route("/v1/runs/{run}", run)
    planner.app.include_router(router)
    recorder.app.mount("/mcp", FastAPI())
    return [recorder, planner]


@pytest.fixture
async def client(services: list[Stub]) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(Edge(services)), base_url="http://edge") as client:
        yield client


async def test_each_path_goes_to_the_first_service_that_has_a_route_for_it(client: httpx.AsyncClient) -> None:
    for run in ("run_1", "run_2", "odd"):
        assert (await client.get(f"/v1/runs/{run}")).json() == f"recorder {run}"
        assert (await client.get(f"/v1/runs/{run}/graph")).json() == f"planner {run}"


async def test_a_path_that_nobody_serves_is_the_one_problem_for_what_is_not_there(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/nothing")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert answer.content == (await client.get("/mcp/nothing/../../x")).content


async def test_the_wrong_method_on_a_right_path_is_405_of_the_service_that_has_it(client: httpx.AsyncClient) -> None:
    assert (await client.delete("/v1/runs/run_1/graph")).status_code == 405


async def test_readiness_and_metrics_speak_for_all(client: httpx.AsyncClient, services: list[Stub]) -> None:
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    assert (await client.get("/readyz")).status_code == 200
    services[1].wrong = {"nats": "away"}
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["wrong"] == {"planner.nats": "away"}
    assert "process_max_fds" in (await client.get("/metrics")).text
