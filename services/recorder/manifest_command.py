"""`takeback manifest check`: what is wrong with a manifest, by itself and beside its server."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from recorder.manifest import BadManifest, Checked, Finding, against, read_manifest
from recorder.toolport.offers import tools_of

app = typer.Typer(no_args_is_help=True, help="Manifests of ordinary tool servers.")
_SECONDS = 20.0


@app.callback()
def _manifest() -> None:
    """Manifests of ordinary tool servers (docs/manifests.md)."""


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="The manifest, YAML.")],
    server: Annotated[
        str | None, typer.Option("--server", help="The URL of its MCP server, to hold it against.")
    ] = None,
    command: Annotated[str | None, typer.Option("--command", help="Or the command that starts it (stdio).")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", help="A header for the server: 'Name: value'.")
    ] = None,
) -> None:
    """Check a manifest: exit 0 if it can be used, else exit 1, and each finding names its line and the reason."""
    try:
        source = file.read_text(encoding="utf-8")
        checked = read_manifest(source)
    except OSError as error:
        typer.echo(f"Nothing was checked: {error}.", err=True)
        raise typer.Exit(2) from error
    except (BadManifest, UnicodeDecodeError) as error:
        _told(file, error.findings if isinstance(error, BadManifest) else [Finding("", "it is no UTF-8 text", 1)])
        raise typer.Exit(1) from error
    http = all(operation.request is not None for operation in checked.manifest.operations.values())
    wanted = config_of(server, command, header or [])
    tools: dict[str, Any] = {}
    if http:
        tools = {name: operation.input or {} for name, operation in checked.manifest.operations.items()}
    elif wanted is not None:
        tools = _tools(wanted)
    if http or wanted is not None:
        findings = against(source, checked.manifest, tools, http=http)
        if findings:
            _told(file, findings)
            raise typer.Exit(1)
    typer.echo(f"{file}: {_counted(checked)}{', and it fits its server' if wanted is not None else ''}.")
    unsaid = sorted(set(tools) - set(checked.manifest.operations))
    if unsaid:
        typer.echo(f"Not in it, so their calls ask: {', '.join(unsaid)}.")


def _told(file: Path, findings: list[Finding]) -> None:
    for finding in findings:
        place = f"{file}:{finding.line}" if finding.line is not None else str(file)
        typer.echo(f"{place}: {finding.where or 'the manifest'}: {finding.reason}", err=True)


def _counted(checked: Checked) -> str:
    manifest = checked.manifest
    writes = sum(not operation.only_reads for operation in manifest.operations.values())
    reads = len(manifest.operations) - writes
    return f"{len(manifest.records)} kinds of records, {writes} writes, {reads} reads"


def config_of(
    server: str | None, command: str | None, headers: list[str], *, http: bool = False
) -> dict[str, Any] | None:
    """The server as it would be registered: at a URL (*http*: a plain one), or a command; None where neither is given."""
    if server is not None:
        pairs = (header.partition(":") for header in headers)
        transport = "http" if http else "mcp"
        return {"transport": transport, "url": server, "headers": {name: value.strip() for name, _, value in pairs}}
    if command is not None:
        program, *args = shlex.split(command)
        return {"transport": "mcp", "command": program, "args": args}
    return None


def _tools(config: dict[str, Any]) -> dict[str, Any]:
    """The server's tools, as it lists them now."""
    from nats.aio.client import Client  # noqa: PLC0415  only where a server is asked

    from recorder.toolport import ToolPortError, open_port  # noqa: PLC0415
    from takeback.cli import run  # noqa: PLC0415

    async def ask() -> dict[str, Any]:
        port = await open_port(
            config, Client(), {**os.environ, "TAKEBACK_ALLOW_COMMANDS": "1", "TAKEBACK_HTTP_ALLOW_PRIVATE": "1"}
        )
        try:
            described = await port.describe(deadline=_SECONDS)
        finally:
            await port.close()
        return tools_of(described)

    try:
        return run(ask())
    except ToolPortError as error:
        typer.echo(f"The server was not asked: {error} The manifest by itself is in order.", err=True)
        raise typer.Exit(2) from error
