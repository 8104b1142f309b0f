"""`python -m examples.browser --postgres URL`: the wiki, a browser, and the tool server that works the one with the other."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Annotated

import asyncpg
import typer
from rich.console import Console

from examples.browser.chromium import NoChromium, browsing
from examples.browser.otter import NoWiki, otter_wiki
from examples.browser.server import wiki_server
from examples.hosting import serving

SECRET = "TAKEBACK_SECRET_WIKI"  # noqa: S105  a variable's name


def main(
    postgres: Annotated[str, typer.Option(help="Where the tool server keeps its answers and tokens.")],
    folder: Annotated[Path, typer.Option(help="Where the wiki keeps its pages.")] = Path("data/wiki"),
) -> None:
    """Serve until interrupted. With TAKEBACK_SECRET_WIKI set, only who sends it as a bearer token is answered."""
    try:
        asyncio.run(_serve(postgres, folder))
    except (NoChromium, NoWiki) as missing:
        Console(stderr=True).print(missing)
        raise typer.Exit(1) from missing


async def _serve(postgres: str, folder: Path) -> None:
    stopped = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stopped.set)
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    async with (
        otter_wiki(folder) as url,
        browsing(url, "Scribe", "scribe@example.org") as wiki,
        asyncpg.create_pool(postgres, min_size=1, max_size=6) as pool,
        serving(wiki_server(wiki, pool).http_app(secret=os.environ.get(SECRET))) as [tools],
    ):
        console = Console()
        console.print(f"The wiki, for people:      {url}")
        console.print(f"Its tools, for a recorder: {tools}/mcp")
        await stopped.wait()


if __name__ == "__main__":
    typer.run(main)
