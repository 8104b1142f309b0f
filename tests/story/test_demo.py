"""`takeback demo`: everything that it tells is read back, so it changes with the seed."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from examples.demo import play
from examples.demo.cast import DealCast, GameCast, deal_cast, game_cast
from examples.opening import read_notes
from takeback.data_folder import DataFolder
from takeback.example import Installation

SEEDS = (7, 2026)


@pytest.fixture(scope="module")
def tellings() -> dict[int, str]:
    return {}


def facts(game: GameCast, deal: DealCast) -> set[str]:
    """What the telling must take from the API for this cast."""
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


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_telling_follows_the_seed(seed: int, installation: Installation, tellings: dict[int, str]) -> None:
    """Issue 2: names, ids and amounts change with the seed, and the telling with them."""
    console = Console(file=io.StringIO(), width=200)
    await play(installation, seed, console)
    assert isinstance(console.file, io.StringIO)
    told = tellings[seed] = console.file.getvalue()
    missing = {fact for fact in facts(game_cast(seed), deal_cast(seed)) if fact not in told}
    assert not missing, told
    for other, earlier in tellings.items():
        if other != seed:
            theirs, ours = facts(game_cast(other), deal_cast(other)), facts(game_cast(seed), deal_cast(seed))
            assert not {fact for fact in theirs - ours if fact in told and fact in earlier}


def test_the_command_plays_against_the_running_stack(installation: Installation) -> None:
    """Issue 2: `takeback demo` finds the folder's running stack through `urls.json`."""
    told = demo(installation.folder.path, 5)
    assert installation.urls.http in told
    assert deal_cast(5).deal in told


def test_where_nothing_runs_the_command_starts_a_stack_and_the_next_one_finds_its_campaigns(
    postgres_url: str, tmp_path: Path
) -> None:
    """Issue 2: it stops what it started; the data folder survives, and the example campaigns are opened once."""
    data = tmp_path / "data"
    campaigns = []
    for _ in range(2):
        assert deal_cast(3).deal in demo(data, 3, TAKEBACK_POSTGRES_URL=postgres_url)
        assert DataFolder(data).urls() is None
        notes = read_notes(data)
        campaigns.append((notes["game"], notes["deal"]))
    assert campaigns[0] == campaigns[1]


def demo(data: Path, seed: int, **more: str) -> str:
    """What `takeback demo` prints."""
    command = [sys.executable, "-m", "takeback", "demo", "--data", str(data), "--seed", str(seed)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TAKEBACK_")}
    done = subprocess.run(command, env=environ | more, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
