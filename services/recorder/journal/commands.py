"""The journal's commands: `takeback verify` (offline) and `takeback fsck`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from recorder.journal.dsse import public_key
from recorder.journal.verify import Broken
from recorder.journal.verify import verify as verified

Data = Annotated[Path, typer.Option("--data", help="The data folder.")]
DEFAULT_DATA = Path("data")


def verify(
    record: Annotated[Path, typer.Argument(help="The Run Record: a file as GET /v1/runs/{r}/record answers it.")],
    key: Annotated[
        Path | None, typer.Option("--key", help="The public key (PEM). [default: DATA/public_key.pem]")
    ] = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Verify a Run Record offline: exit 0 if it is whole and as signed, else exit 1 and the first bad record is named."""
    key_file = key or data / "public_key.pem"
    try:
        content, opened_with = record.read_bytes(), public_key(key_file)
    except (OSError, ValueError) as error:
        typer.echo(
            f"Nothing was verified: {error}. Name the record's file, and with --key the signer's public key.", err=True
        )
        raise typer.Exit(2) from error
    outcome = verified(content, opened_with)
    if isinstance(outcome, Broken):
        typer.echo(f"{record}: NOT as it was signed. First bad record: {outcome}", err=True)
        raise typer.Exit(1)
    head = outcome.head
    typer.echo(
        f"{record}: {head['records']} records of {head['stream']}, unbroken to the head that was signed at "
        f"{head['exportedAt']} ({'closed' if head['closed'] else 'open'})."
    )


def fsck(data: Data = DEFAULT_DATA) -> None:
    """Check the journal against itself: every chain, every projection, the checkpoints. Exit 1 names each difference."""
    from takeback.data_folder import DataFolder, NothingRuns  # noqa: PLC0415

    try:
        environ = DataFolder(data).environ()
    except NothingRuns as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    differences = asyncio.run(_fsck(environ))
    if differences:
        raise typer.Exit(1)
    typer.echo("The journal is whole: every chain is unbroken and every projection follows from it.")


async def _fsck(environ: Mapping[str, str]) -> int:
    from recorder.journal.checkpoints import Checkpoints  # noqa: PLC0415
    from recorder.journal.fsck import fsck as check  # noqa: PLC0415
    from takeback.database import connect_pool  # noqa: PLC0415

    keys = Path(environ["TAKEBACK_KEYS_DIR"]) if environ.get("TAKEBACK_KEYS_DIR") else None
    checkpoints = Checkpoints.beside(keys).streams() if keys and (keys / "signing.pem").exists() else []
    pool = await connect_pool(environ["TAKEBACK_POSTGRES_URL"], "recorder", maximum=2)
    count = 0
    try:
        async for difference in check(pool, checkpoints):
            typer.echo(str(difference), err=True)
            count += 1
    finally:
        await pool.close()
    return count
