"""@modelcontextprotocol/server-memory behind the shipped manifest, through the recorder (E3, G8)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.real_servers.bench import Bench
from tests.real_servers.conftest import Opened

pytestmark = pytest.mark.asyncio(loop_scope="session")

ANN = {"type": "entity", "name": "Ann", "entityType": "person", "observations": ["likes tea", "ünïcode", "is kind"]}
BOB = {"type": "entity", "name": "Bob / B?", "entityType": "person", "observations": []}
KNOWS = {"type": "relation", "from": "Ann", "to": "Bob / B?", "relationType": "knows"}
TRUSTS = {"type": "relation", "from": "Bob / B?", "to": "Ann", "relationType": "trusts"}


class Graph:
    """The graph as the server's file has it; the server reads it anew for each call."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, *lines: dict[str, Any]) -> None:
        self._file.write_text("\n".join(map(json.dumps, lines)))

    def read(self) -> list[str]:
        """Its lines, in no order: a graph has none."""
        return sorted(map(json.dumps, map(json.loads, self._file.read_text().splitlines())))

    def has(self, *lines: dict[str, Any]) -> bool:
        return self.read() == sorted(map(json.dumps, lines))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("memory")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bench(opened: Opened, place: Path) -> Bench:
    return await opened("memory", place)


@pytest.fixture
def graph(bench: Bench, place: Path) -> Graph:
    graph = Graph(place / "memory.jsonl")
    graph.write(ANN, BOB, KNOWS, TRUSTS)
    return graph


def _relation(relation: dict[str, Any]) -> dict[str, Any]:
    return {name: relation[name] for name in ("from", "to", "relationType")}


CALLS: dict[str, dict[str, Any]] = {
    "create_entities": {"entities": [{"name": "Cem", "entityType": "person", "observations": ["new"]}]},
    "add_observations": {"observations": [{"entityName": "Ann", "contents": ["is kind", "is late"]}]},
    "delete_observations": {"deletions": [{"entityName": "Ann", "observations": ["ünïcode", "never said"]}]},
    "delete_entities": {"entityNames": ["Bob / B?", "Nobody"]},
    "create_relations": {"relations": [{"from": "Ann", "to": "Bob / B?", "relationType": "likes"}]},
    "delete_relations": {"relations": [_relation(KNOWS)]},
}


@pytest.mark.parametrize("operation", CALLS)
async def test_what_a_call_did_comes_back_exactly_and_a_second_undo_changes_nothing(
    bench: Bench, graph: Graph, operation: str
) -> None:
    """E3: each write tool; observations in their order, relations with the entity that they went with."""
    entry = await bench.alone(operation, **CALLS[operation])
    assert not graph.has(ANN, BOB, KNOWS, TRUSTS)
    assert await bench.back(entry) == ["reverted"]
    assert graph.has(ANN, BOB, KNOWS, TRUSTS)
    assert await bench.back(entry) == ["already_reverted"]
    assert graph.has(ANN, BOB, KNOWS, TRUSTS)


@pytest.mark.parametrize(
    ("operation", "theirs"),
    [
        ("create_entities", [{"type": "entity", "name": "Cem", "entityType": "person", "observations": ["theirs"]}]),
        ("create_entities", [{"type": "relation", "from": "Ann", "to": "Cem", "relationType": "met"}]),
        ("add_observations", [{**ANN, "observations": ["theirs"]}]),
        ("delete_observations", [{**ANN, "observations": ["theirs"]}]),
        ("delete_entities", [{**BOB, "observations": ["theirs"]}]),
        ("create_relations", []),
        ("delete_relations", [KNOWS]),
    ],
)
async def test_what_somebody_else_did_in_between_is_a_conflict_and_survives(
    bench: Bench, graph: Graph, operation: str, theirs: list[dict[str, Any]]
) -> None:
    """G8: also a relation to a new entity, which would be deleted with it."""
    entry = await bench.alone(operation, **CALLS[operation])
    kept = {(line["type"], line.get("name", line.get("relationType"))): line for line in map(json.loads, graph.read())}
    kept.pop(("relation", "likes"), None)
    kept |= {(line["type"], line.get("name", line.get("relationType"))): line for line in theirs}
    graph.write(*kept.values())
    assert await bench.back(entry) == ["conflict"]
    assert graph.has(*kept.values())


async def test_of_a_batch_only_what_was_not_there_before_is_taken_back(bench: Bench, graph: Graph) -> None:
    """E3: the server skips what exists without a word."""
    ann = {"name": "Ann", "entityType": "impostor", "observations": []}
    entry = await bench.alone("create_entities", entities=[ann, *CALLS["create_entities"]["entities"]])
    effects = (await bench.entry(entry))["effects"]
    assert [effect["resource"] for effect in effects] == ["memory://entity/Cem"]
    assert await bench.back(entry) == ["reverted"]
    assert graph.has(ANN, BOB, KNOWS, TRUSTS)


async def test_deleting_what_is_not_there_succeeds_and_has_nothing_to_take_back(bench: Bench, graph: Graph) -> None:
    """E3: the answer says that it was deleted."""
    response = await bench.ask("delete_entities", entityNames=["Nobody"])
    entry = response.json()["entry"]
    assert response.status_code in (200, 202)
    if response.status_code == 200:
        assert entry["undo"]["why"] == "it changed nothing"
    assert graph.has(ANN, BOB, KNOWS, TRUSTS)


async def test_an_entity_with_observations_and_a_relation_comes_back_in_one_plan(bench: Bench, graph: Graph) -> None:
    """S11: the agent's own later calls are no conflict."""
    entity = await bench.alone("create_entities", **CALLS["create_entities"])
    said = await bench.call("add_observations", observations=[{"entityName": "Cem", "contents": ["later"]}])
    related = await bench.call("create_relations", relations=[{"from": "Cem", "to": "Ann", "relationType": "knows"}])
    gone = await bench.call("delete_entities", entityNames=["Ann"])
    assert await bench.back(entity, said, related, gone) == ["reverted"] * 4
    assert graph.has(ANN, BOB, KNOWS, TRUSTS)


async def test_a_batch_is_held_back_when_any_of_its_records_is_being_taken_back(bench: Bench, graph: Graph) -> None:
    """J19: nothing of it is done, the records that are free included."""
    alone = await bench.call("add_observations", observations=[{"entityName": "Bob / B?", "contents": ["is late"]}])
    before, resource = graph.read(), (await bench.entry(alone))["effect"]["resource"]
    both = [{"entityName": name, "contents": ["waits"]} for name in ("Ann", "Bob / B?")]
    async with bench.held(resource):
        refused = await bench.ask("add_observations", observations=both)
        assert (refused.status_code, refused.json()["title"]) == (409, "reversal running"), refused.text
        assert graph.read() == before
    entry = await bench.call("add_observations", observations=both)
    assert await bench.back(entry) == ["reverted"]
    assert graph.read() == before
