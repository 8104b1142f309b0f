"""`takeback demo`: both stories, played against running services and told on the terminal."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from examples.client import NothingCame, Refused
from examples.demo.cast import deal_cast, game_cast
from examples.demo.deal import play_deal
from examples.demo.fighter import play_fighter
from examples.demo.stage import NoExamples, Stage
from examples.demo.telling import Telling
from takeback.cli import DEFAULT_DATA, Data, fail, run
from takeback.data_folder import DataFolder
from takeback.example import Installation
from takeback.logging import configure_logging
from takeback.stack import reach

WIDTH = 110
INTRODUCTION = (
    "Agents act through it: it writes every call down before it runs, and takes it back when a person says so, "
    "as far as that can be done and never over what somebody else did since."
)


def command(
    data: Data = DEFAULT_DATA,
    seed: Annotated[int | None, typer.Option(help="Names, ids and amounts follow from it. [default: any]")] = None,
) -> None:
    """Play both stories against the stack that runs on the data folder; where none runs, start one and stop it after."""
    try:
        run(_demo(data, secrets.randbelow(10_000) if seed is None else seed))
    except (Refused, NothingCame, NoExamples) as reason:
        fail(reason)


async def play(installation: Installation, seed: int, console: Console) -> None:
    """Both stories. Raises `Refused` where a service refuses what the story needs, `NothingCame`, NoExamples."""
    tell = Telling(console)
    async with Stage(installation) as stage:
        await play_fighter(stage, game_cast(seed), tell)
        await play_deal(stage, deal_cast(seed), tell)


async def _demo(data: Path, seed: int) -> None:
    console = Console(highlight=False, width=max(WIDTH, Console().width))
    folder = DataFolder(data)
    folder.path.mkdir(mode=0o711, parents=True, exist_ok=True)
    with (folder.path / "takeback.log").open("a", buffering=1) as log:
        configure_logging("takeback", stream=log)  # of a stack that is started for the demo: the stage is the story's
        async with reach(folder) as installation:
            console.print(f"Takeback at {installation.urls.http}, seed {seed}. {INTRODUCTION}")
            await play(installation, seed, console)
