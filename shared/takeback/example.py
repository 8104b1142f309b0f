"""How an example joins the embedded start: an entry point of group `takeback.examples`.

It is called with the installation and answers an async context manager: entering it opens the example's campaign,
starts its tool servers and gives the `Guide` that the terminal shows; leaving it stops what it started.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from takeback.auth import Kind
from takeback.data_folder import DataFolder, Urls


@dataclass(frozen=True, slots=True)
class Installation:
    """A running stack, as an example or the demo sees it.

    `environ` holds the services' settings, `TAKEBACK_SECRET_EXAMPLES` among them: the secret by which example tool
    servers know the recorder (as `env:TAKEBACK_SECRET_EXAMPLES` in a server's `headers`).
    """

    folder: DataFolder
    urls: Urls
    environ: Mapping[str, str]

    def token(self, sub: str, kind: Kind = "human") -> str:
        """A bearer token for *sub*."""
        return self.folder.token(sub, kind)


@dataclass(frozen=True, slots=True)
class Guide:
    """What a visitor reads about an example: a *title*, where to look, and the *tokens* by whom they speak for."""

    title: str
    look: Mapping[str, str] = field(default_factory=dict)
    tokens: Mapping[str, str] = field(default_factory=dict)


Example = Callable[[Installation], AbstractAsyncContextManager[Guide]]
