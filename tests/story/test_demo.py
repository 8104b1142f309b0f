"""`takeback demo`: everything that it tells is read back, so it changes with the seed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.demo.cast import deal_cast, game_cast
from examples.hosting import serving
from examples.opening import open_campaign
from examples.table.example import PLAN
from takeback.data_folder import DataFolder, Urls
from takeback.example import Installation

RUNNING, ALONE = 7, 2026  # seeds


@pytest.fixture(scope="module")
def running(installation: Installation) -> str:
    """What the demo tells against the stack that runs on its folder."""
    return demo(installation.folder.path, RUNNING)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What it tells on a folder where nothing runs: it starts a stack and stops it after."""
    data = tmp_path_factory.mktemp("alone") / "data"
    told = demo(data, ALONE)
    assert DataFolder(data).urls() is None
    return told


def test_the_demo_plays_against_the_stack_that_runs_on_its_folder(running: str, installation: Installation) -> None:
    """Issue 2: found through `urls.json`, names, ids and amounts as the seed says."""
    assert installation.urls.http in running
    assert not {fact for fact in facts(RUNNING) if fact not in running}, running


def test_where_nothing_runs_it_starts_a_stack_and_stops_it_after(alone: str) -> None:
    """Issue 2: nothing but the folder is needed."""
    assert not {fact for fact in facts(ALONE) if fact not in alone}, alone


def test_another_seed_is_another_telling(running: str, alone: str) -> None:
    """Issue 2: no answer is written into the demo; what one seed tells of its own, the other does not."""
    assert not {fact for fact in facts(RUNNING) - facts(ALONE) if fact in alone}
    assert not {fact for fact in facts(ALONE) - facts(RUNNING) if fact in running}


async def test_the_example_campaign_is_opened_once_and_found_again(tmp_path: Path) -> None:
    """Issue 2: the data folder survives restarts; where the database was emptied, the campaign is opened anew."""
    opened: list[str] = []

    async def open_one(_: Request) -> Response:
        opened.append(f"cmp_{len(opened) + 1}")
        return JSONResponse({"id": opened[-1]}, 201)

    async def known(request: Request) -> Response:
        there = request.path_params["campaign"] in opened
        return JSONResponse({} if there else {"title": "not found"}, 200 if there else 404)

    async def put(_: Request) -> Response:
        return JSONResponse({})

    routes = [
        Route("/v1/campaigns", open_one, methods=["POST"]),
        Route("/v1/campaigns/{campaign}", known),
        Route("/v1/campaigns/{campaign}/{what:path}", put, methods=["PUT"]),
    ]
    folder = DataFolder(tmp_path)
    folder.prepare()
    async with serving(Starlette(routes=routes)) as [url]:
        installation = Installation(folder, Urls(url, "", "", "", ""), {})
        assert [await open_campaign(installation, PLAN) for _ in range(2)] == ["cmp_1", "cmp_1"]
        opened[:] = ["cmp_of_another_database"]
        assert await open_campaign(installation, PLAN) == "cmp_2"


def facts(seed: int) -> set[str]:
    """What the telling must have read for this seed."""
    game, deal = game_cast(seed), deal_cast(seed)
    return {
        *(creature.name for creature in game.scene.creatures),
        f"{game.fighter.hp} of {game.fighter.max_hp} hp",
        *(f"{player} heard interaction_reverted" for player in (game.fighter.player, game.paladin.player)),
        deal.deal,
        deal.customer,
        f"{deal.amount} {deal.currency}",
        f"{deal.refund} of {deal.paid} {deal.currency}",
        deal.next_step,
        deal.address,
        f"{deal.teammate} edits {deal.deal}",
    }


def demo(data: Path, seed: int) -> str:
    """What `takeback demo` prints."""
    command = [sys.executable, "-m", "takeback", "demo", "--data", str(data), "--seed", str(seed)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TAKEBACK_")}
    done = subprocess.run(
        command, env={**environ, "COLUMNS": "200"}, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
