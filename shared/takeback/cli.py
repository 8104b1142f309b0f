"""The `takeback` command. What belongs to a service or to the examples is found by entry point, and loaded when asked for.

Group `takeback.commands`: a function or a `typer.Typer` per command. Group `takeback.rebuilds`: an async function per
service, from its settings to a line that says what was rebuilt.
"""

import asyncio
import gc
from collections.abc import Coroutine
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from typer.core import TyperGroup

Result = TypeVar("Result")

Data = Annotated[Path, typer.Option("--data", help="The data folder.", show_default=True)]
DEFAULT_DATA = Path("data")


class _WithInstalledCommands(TyperGroup):
    """Adds the commands of group `takeback.commands`; only the one that is called is imported."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *sorted(_points("takeback.commands"))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if (own := super().get_command(ctx, cmd_name)) is not None:
            return own
        point = _points("takeback.commands").get(cmd_name)
        return None if point is None else _as_command(cmd_name, point.load())


app = typer.Typer(
    cls=_WithInstalledCommands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Takes back what an AI agent already did.",
)


@app.command()
def serve(
    service: Annotated[
        str | None,
        typer.Argument(help="recorder, planner or notifier alone; without it all three, with embedded servers."),
    ] = None,
    data: Data = DEFAULT_DATA,
    port: Annotated[
        int | None, typer.Option(help="The HTTP port. [default: 8420, or a free one; 0: any free one]")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    examples: Annotated[bool, typer.Option(help="Start the example campaigns and their tool servers.")] = True,
) -> None:
    """Run Takeback until SIGINT or SIGTERM.

    Embedded PostgreSQL, NATS and Valkey live in the data folder; TAKEBACK_POSTGRES_URL, TAKEBACK_NATS_URL and
    TAKEBACK_REDIS_URL each name a real one instead.
    """
    gc.disable()  # what a start makes stays; once it is ready the collector runs again
    from takeback import serving  # noqa: PLC0415

    if service is None:
        work = serving.serve_stack(data, host=host, port=port, examples=examples)
    else:
        work = serving.serve_service(service, data, host=host, port=port)
    raise typer.Exit(run(work))


@app.command()
def token(
    sub: Annotated[str, typer.Argument(help="Who the token speaks for.")],
    agent: Annotated[bool, typer.Option("--agent", help="An agent's token.")] = False,
    service: Annotated[bool, typer.Option("--service", help="Another system's token.")] = False,
    data: Data = DEFAULT_DATA,
) -> None:
    """Print a bearer token, signed with the data folder's own key."""
    from takeback.data_folder import DataFolder, NothingRuns  # noqa: PLC0415

    if agent and service:
        raise typer.BadParameter("a token is an agent's or a service's, not both")
    try:
        typer.echo(DataFolder(data).token(sub, "agent" if agent else "service" if service else "human"))
    except NothingRuns as reason:
        fail(reason)


@app.command()
def migrate(data: Data = DEFAULT_DATA) -> None:
    """Bring the database schemas, the streams and the keys to this version. Safe to run again, and by several at once."""
    from takeback import serving  # noqa: PLC0415

    run(serving.migrate(data))


@app.command()
def rebuild(
    service: Annotated[str, typer.Argument(help="planner or notifier.")],
    data: Data = DEFAULT_DATA,
) -> None:
    """Drop what a service has derived from the journal and derive it anew; nothing is sent again."""
    from takeback.data_folder import DataFolder, NothingRuns  # noqa: PLC0415

    points = _points("takeback.rebuilds")
    if service not in points:
        raise typer.BadParameter(f"{service} keeps nothing that can be rebuilt; choose {' or '.join(sorted(points))}")
    try:
        environ = DataFolder(data).environ()
    except NothingRuns as reason:
        fail(reason)
    typer.echo(run(points[service].load()(environ)))


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run *work* on uvloop; what a person can put right is told on standard error, with exit code 1."""
    import uvloop  # noqa: PLC0415

    from takeback.logging import configure_logging  # noqa: PLC0415
    from takeback.serving import TOLD, explain  # noqa: PLC0415

    configure_logging("takeback", "WARNING")  # to standard error; what serves says more, and where it is kept
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    except TOLD as reason:
        fail(explain(reason))


def fail(reason: object) -> NoReturn:
    """Tell *reason* on standard error and end with code 1."""
    typer.echo(f"takeback: {reason}", err=True)
    raise typer.Exit(1)


def _points(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def _as_command(name: str, found: Any) -> Any:
    if isinstance(found, typer.Typer):
        group = typer.main.get_command(found)
        group.name = name
        return group
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name)(found)
    return typer.main.get_command(single)
