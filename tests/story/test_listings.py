"""What pages are made of: your campaigns, a campaign's runs, a run's newest entries, a window of its graph."""

import pytest

from examples.agents.narrator import Narrator
from examples.client import Refused
from examples.demo.cast import game_cast
from examples.demo.stage import Stage
from examples.table.example import AGENT


async def test_a_person_finds_their_campaigns_and_the_runs_of_each_newest_first(stage: Stage) -> None:
    """U2, G7: with the role held there; a stranger finds none, and runs of none."""
    table, deal = stage.campaign("game"), stage.campaign("deal")
    mira, dana = await stage.seat("mira"), await stage.seat("dana")
    found = {one["id"]: one["role"] for one in (await mira.get("/v1/campaigns"))["items"]}
    assert (found[table], deal in found) == ("member", False)
    assert deal in {one["id"] for one in (await dana.get("/v1/campaigns"))["items"] if one["role"] == "owner"}
    older, newer = [await Narrator.begin(await stage.seat(AGENT, "agent"), table, "mira") for _ in range(2)]
    runs = (await mira.get(f"/v1/campaigns/{table}/runs"))["items"]
    assert [run["id"] for run in runs[:2]] == [newer.run, older.run]
    assert (runs[0]["status"], runs[0]["agent"]) == ("open", AGENT)
    stranger = await stage.seat("stranger")
    assert (await stranger.get("/v1/campaigns"))["items"] == []
    with pytest.raises(Refused, match="404"):
        await stranger.get(f"/v1/campaigns/{table}/runs")


async def test_a_long_run_is_read_from_its_end_and_its_graph_in_windows(stage: Stage) -> None:
    """U2: page through; each window of the graph holds the links between its own entries."""
    cast = game_cast(41)
    await (await stage.game()).set_up(cast.scene)
    narrator = await Narrator.begin(await stage.seat(AGENT, "agent"), stage.campaign("game"), "mira")
    for step in range(5):
        await narrator.move(cast.scene.adventure, cast.fighter.id, step + 1, 1)
    mira = await stage.seat("mira")
    path = f"/v1/runs/{narrator.run}"
    first = await mira.get(f"{path}/entries?order=newest&limit=2")
    assert [entry["label"] for entry in first["items"]] == ["e5", "e4"]
    second = await mira.get(f"{path}/entries?order=newest&limit=2&cursor={first['next']}")
    assert [entry["label"] for entry in second["items"]] == ["e3", "e2"]
    last = await mira.get(f"{path}/entries?order=newest&limit=2&cursor={second['next']}")
    assert ([entry["label"] for entry in last["items"]], last.get("next")) == (["e1"], None)
    window = await mira.get(f"{path}/graph?skip=1&limit=3")
    shown = [entry["id"] for entry in window["entries"]]
    assert [entry["label"] for entry in window["entries"]] == ["e2", "e3", "e4"]
    assert window["links"]
    assert all(link["entry"] in shown and link["dependsOn"] in shown for link in window["links"])
    for wrong in ("order=sideways", "limit=0", "limit=201", "limit=x"):
        with pytest.raises(Refused, match="422"):
            await mira.get(f"{path}/entries?{wrong}")
