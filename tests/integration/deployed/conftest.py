"""One deployment for all tests here: what docker-compose.yml says, running, and both examples beside it."""

import io
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from rich.console import Console

from examples.demo.stage import Stage
from examples.demo.telling import Telling
from tests.compose import Compose
from tests.deployed_examples import SECRET, Wire, examples_beside
from tests.deployment import Deployment


@dataclass
class Deployed:
    deployment: Deployment
    stage: Stage
    wire: Wire
    told: io.StringIO

    @property
    def tell(self) -> Telling:
        return Telling(Console(file=self.told, width=200))


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def deployed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployed]:
    folder = tmp_path_factory.mktemp("deployed")
    variables = {name: f"p{secrets.token_hex(12)}" for name in {*Compose.required(), SECRET}}
    variables |= {"TAKEBACK_SWEEP_SECONDS": "0.5", "TAKEBACK_FORWARD_DEADLINE_SECONDS": "2.4"}
    async with (
        Deployment(folder / "compose", variables) as deployment,
        examples_beside(deployment, folder / "examples") as (stage, wire),
    ):
        yield Deployed(deployment, stage, wire, io.StringIO())
