"""The bus as every service meets it: a connection that comes back, and the JetStream streams, which are data.

A stream's configuration is a file in `deploy/streams/` (in a wheel: `takeback/streams/`), in the words of JetStream's
own API, durations in nanoseconds.
"""

import json
from dataclasses import asdict
from importlib import resources
from typing import Any

import structlog
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from nats.js.errors import APIError, NotFoundError

from takeback.errors import words_of

log = structlog.get_logger()


class StreamConflict(Exception):
    """A stream exists with a configuration that JetStream cannot change in place. Nothing was changed."""


async def connect(url: str, name: str) -> Client:
    """A connection that reconnects for ever and says so in the log. Raises OSError or nats' NoServersError."""

    client = Client()

    async def on_error(error: Exception) -> None:
        log.warning("bus", error=words_of(error))

    async def on_disconnect() -> None:
        if not client.is_closed:
            log.warning("bus disconnected")

    async def on_reconnect() -> None:
        log.info("bus connected again")

    await client.connect(
        url,
        name=name,
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.1,  # type: ignore[arg-type]  # seconds; nats-py says int and takes any number
        error_cb=on_error,
        disconnected_cb=on_disconnect,
        reconnected_cb=on_reconnect,
    )
    return client


async def settle(client: Client) -> None:
    """Wait until the server has taken in what *client* wrote before: a subscription hears all that is published from now on.

    One flush is no proof of that: its question leaves at once, and may overtake commands that wait to be written (nats-py
    2.16). The second one's cannot.
    """
    await client.flush()
    await client.flush()


def stream_configurations() -> list[StreamConfig]:
    """The streams that Takeback needs, in the order of their files' names."""
    folder = resources.files("takeback") / "streams"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda file: file.name)
    return [StreamConfig.from_response(json.loads(file.read_text())) for file in files]


async def provision_streams(js: JetStreamContext) -> None:
    """Make each stream that is missing and update each that differs; never delete one, nor what is in it.

    Safe to call by several processes at once, and again at any time. Raises StreamConflict.
    """
    for wanted in stream_configurations():
        assert wanted.name is not None
        try:
            have = (await js.stream_info(wanted.name)).config
        except NotFoundError:
            await js.add_stream(wanted)
            log.info("stream made", stream=wanted.name)
            continue
        if not (differing := _differing(wanted, have)):
            continue
        try:
            await js.update_stream(have.evolve(**differing))
        except APIError as reason:
            raise StreamConflict(
                f"The stream {wanted.name} differs in {', '.join(differing)} and JetStream refuses the change "
                f"({reason.description}). Nothing was changed. Everything in it can be published again from the "
                f"journal: delete it by hand (nats stream rm {wanted.name}) and start again."
            ) from reason
        log.info("stream updated", stream=wanted.name, fields=sorted(differing))


def _differing(wanted: StreamConfig, have: StreamConfig) -> dict[str, Any]:
    set_here = {name: value for name, value in asdict(wanted).items() if value is not None}
    return {name: getattr(wanted, name) for name, value in set_here.items() if asdict(have).get(name) != value}
