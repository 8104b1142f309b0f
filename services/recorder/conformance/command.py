"""`takeback conformance`: the ways back of tool servers, tried at the servers themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from nats.aio.client import Client
from rich.console import Console

from recorder.conformance.exercise import Exercise, Result
from recorder.conformance.registered import NotRegistered, registered
from recorder.conformance.tally import Tally, proven
from recorder.manifest import BadManifest, Checked, read_manifest
from recorder.manifest.model import Case
from recorder.manifest_command import config_of
from recorder.toolport import Operation, ToolPort, ToolPortError, open_port
from takeback.cli import fail, run

_SECONDS = 20.0


def conformance(
    target: Annotated[str, typer.Argument(help="A manifest (YAML), or the name of a registered server.")],
    server: Annotated[str | None, typer.Option("--server", help="The URL of the manifest's server.")] = None,
    command: Annotated[str | None, typer.Option("--command", help="Or the command that starts it (stdio).")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", help="A header for it: 'Name: value'.")] = None,
    campaign: Annotated[
        str | None, typer.Option("--campaign", help="The campaign that has it registered: marks what holds there.")
    ] = None,
    cases: Annotated[
        Path | None,
        typer.Option("--cases", help="Cases for a server whose manifest has none: YAML, `conformance: […]`."),
    ] = None,
    data: Annotated[Path, typer.Option("--data", help="The data folder of the installation.")] = Path("data"),
) -> None:
    """Call and undo, undo twice, and let somebody else come in between, on scratch records. Exit 1 where a case failed."""
    try:
        extra = [] if cases is None else cases_in(cases.read_text(encoding="utf-8"))
        if campaign is not None:
            results = run(_at_installation(target, campaign, extra, data))
        else:
            checked = read_manifest(Path(target).read_text(encoding="utf-8"))
            http = all(operation.request is not None for operation in checked.manifest.operations.values())
            config = config_of(server, command, header or [], http=http)
            if config is None:
                fail("Where is its server? Name it with --server or --command, or say --campaign for a registered one.")
            results = run(at_server(config, checked, extra))
    except (OSError, BadManifest, NotRegistered, ToolPortError) as error:
        fail(f"{error} Nothing was marked.")
    tally = Tally()
    tally.add(target, results)
    tally.show(Console())
    if tally.failed:
        raise typer.Exit(1)


def cases_in(source: str) -> list[Case]:
    """The cases of a file that has nothing else, for a server that declares its undo itself. Raises `BadManifest`."""
    import yaml  # noqa: PLC0415
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415

    from recorder.manifest import Finding  # noqa: PLC0415

    try:
        return TypeAdapter(list[Case]).validate_python((yaml.safe_load(source) or {}).get("conformance"))
    except (yaml.YAMLError, ValidationError, AttributeError) as error:
        raise BadManifest([Finding("conformance", str(error))]) from error


async def at_server(config: dict[str, Any], checked: Checked | None, extra: Sequence[Case] = ()) -> list[Result]:
    """The results of a manifest's cases and *extra* at the server that *config* names. Raises `ToolPortError`."""
    environ = {**os.environ, "TAKEBACK_ALLOW_COMMANDS": "1", "TAKEBACK_HTTP_ALLOW_PRIVATE": "1"}
    port = await open_port(config, Client(), environ, checked)
    try:
        return (await _exercised(port, checked, extra))[0]
    finally:
        await port.close()


async def _at_installation(name: str, campaign: str, extra: Sequence[Case], data: Path) -> list[Result]:
    from takeback.data_folder import DataFolder, NothingRuns  # noqa: PLC0415

    try:
        environ = DataFolder(data).environ()
    except NothingRuns as reason:
        fail(reason)
    async with registered(environ, campaign) as servers:
        port, checked = await servers.port(name)
        results, operations = await _exercised(port, checked, extra)
        holding = proven(results)
        moved = await servers.mark(name, [operation for operation in operations if operation.name in holding])
    if moved:
        typer.echo(f"Not marked, because they are no longer as they are pinned: {', '.join(moved)}.", err=True)
    return results


async def _exercised(
    port: ToolPort, checked: Checked | None, extra: Sequence[Case]
) -> tuple[list[Result], list[Operation]]:
    described = await port.describe(deadline=_SECONDS)
    manifested = {} if checked is None else checked.manifest.operations
    exercise = Exercise(port, described.operations, manifested)
    cases = [*([] if checked is None else checked.manifest.conformance), *extra]
    if not cases:
        fail("There are no cases: write `conformance:` into its manifest, or give a file with --cases.")
    results = [await exercise.run(case) for case in cases]
    return results + _untried(described.operations, cases), described.operations


def _untried(operations: Sequence[Operation], cases: Sequence[Case]) -> list[Result]:
    """Every operation with a way back has a case; one that has none has failed."""
    tried = {case.call for case in cases}
    return [
        Result(operation.name, "(no case)", {"call": "it says how it is taken back, and no case tries it"})
        for operation in operations
        if operation.declaration.undo.kind == "compensate" and operation.name not in tried
    ]
