"""What the running services answer as proof is proof: verified with the public key of the data folder, and nothing else."""

from pathlib import Path

from typer.testing import CliRunner

from examples.agents.narrator import Narrator
from examples.demo.cast import game_cast
from examples.demo.stage import Stage
from examples.table.example import AGENT, OWNER
from takeback.cli import app
from takeback.example import Installation


async def test_the_records_that_the_api_answers_are_verified_offline(
    stage: Stage, installation: Installation, tmp_path: Path
) -> None:
    """J13, G10: the Run Record, and the Reversal Record as the planner tells it."""
    cast, campaign = game_cast(53), stage.campaign("game")
    await (await stage.game()).set_up(cast.scene)
    owner = await stage.seat(OWNER)
    narrator = await Narrator.begin(await stage.seat(AGENT, "agent"), campaign, OWNER)
    await narrator.move(cast.scene.adventure, cast.fighter.id, 1, 1)
    undone = await owner.post(f"/v1/campaigns/{campaign}/interactions/{narrator.interaction}/undo", {"reason": "no"})
    assert undone["reverted"] is True
    for path, told in (
        (f"/v1/runs/{narrator.run}/record", f"records of {narrator.run}, unbroken"),
        (f"/v1/plans/{undone['plan']['id']}/record", f"of plan {undone['plan']['id']}, as it was signed: 1 reverted"),
    ):
        file = tmp_path / "record"
        file.write_bytes((await owner._http.get(path)).content)
        key = installation.folder.path / "public_key.pem"
        answer = CliRunner().invoke(app, ["verify", str(file), "--key", str(key)])
        assert (answer.exit_code, told in answer.output) == (0, True), answer.output
