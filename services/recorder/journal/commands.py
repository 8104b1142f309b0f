"""The journal's commands: `takeback verify` (offline) and `takeback fsck`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ValidationError

from recorder.journal.dsse import BadSignature, public_key
from recorder.journal.verify import Broken
from recorder.journal.verify import verify as verified
from takeback import json
from takeback.errors import Problem

Data = Annotated[Path, typer.Option("--data", help="The data folder.")]
DEFAULT_DATA = Path("data")


def verify(
    record: Annotated[
        Path,
        typer.Argument(
            help="A Run Record or a Reversal Record: a file as GET /v1/runs/{r}/record or /v1/plans/{p}/record answers it."
        ),
    ],
    key: Annotated[
        Path | None, typer.Option("--key", help="The public key (PEM). [default: DATA/public_key.pem]")
    ] = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Verify a record offline: exit 0 if it is whole and as signed, else exit 1 and what is bad first is named."""
    key_file = key or data / "public_key.pem"
    try:
        content, opened_with = record.read_bytes(), public_key(key_file)
    except (OSError, ValueError) as error:
        typer.echo(
            f"Nothing was verified: {error}. Name the record's file, and with --key the signer's public key.", err=True
        )
        raise typer.Exit(2) from error
    if (reversal := _reversal_record(content)) is not None:
        _verify_reversal(record, reversal, opened_with)
        return
    outcome = verified(content, opened_with)
    if isinstance(outcome, Broken):
        typer.echo(f"{record}: NOT as it was signed. First bad record: {outcome}", err=True)
        raise typer.Exit(1)
    head = outcome.head
    typer.echo(
        f"{record}: {head['records']} records of {head['stream']}, unbroken to the head that was signed at "
        f"{head['exportedAt']} ({'closed' if head['closed'] else 'open'})."
    )


def _reversal_record(content: bytes) -> dict[str, Any] | None:
    """The Reversal Record in *content*; None where it holds something else, such as a Run Record's lines."""
    try:
        document = json.parse(content)
    except Problem:  # no JSON, or with a member that stands in it twice
        return None
    return document if isinstance(document, dict) and "receipts" in document else None


def _verify_reversal(file: Path, record: dict[str, Any], key: Ed25519PublicKey) -> None:
    from recorder.reversing.signing import not_as_signed  # noqa: PLC0415

    try:
        bad = ", ".join(not_as_signed(record, key))
    except (BadSignature, ValidationError) as error:
        typer.echo(f"{file}: NOT as it was signed: {error}", err=True)
        raise typer.Exit(1) from error
    if bad:
        typer.echo(f"{file}: NOT as it was signed. What was changed, added or left away: {bad}", err=True)
        raise typer.Exit(1)
    counted = Counter(receipt["outcome"] for receipt in record["receipts"])
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counted.items()) or "no step"
    typer.echo(
        f"{file}: Reversal Record {record['id']} of plan {record['plan']}, as it was signed: {outcomes}; approved by"
        f" {record['approvedBy']} ({record['authority']}), {record['at']}."
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
