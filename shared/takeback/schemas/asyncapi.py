"""The bus as an AsyncAPI 3.0 document: a channel for each event type. Pure."""

from __future__ import annotations

from typing import Any

from takeback.messages.events import EVENT_DATA

_ABOUT = (
    "Every event is a CloudEvent 1.0 in structured JSON. `Nats-Msg-Id` is the event's id. The data of a journal record says "
    "where it stands in its stream: `seq`, `after` (the previous published seq), `hash`, `previousHash`. The live streams "
    "(`GET /v1/campaigns/{campaign}/stream`, `…/ws`) carry the same events."
)


def asyncapi() -> dict[str, Any]:
    """Takeback sends; other systems listen, with a user that may subscribe to `takeback.>` and nothing else."""
    types = sorted(EVENT_DATA)
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Takeback", "version": "1", "description": _ABOUT, "license": {"name": "Apache-2.0"}},
        "defaultContentType": "application/cloudevents+json",
        "servers": {
            "nats": {
                "host": "127.0.0.1:4222",
                "protocol": "nats",
                "description": "`nats` in the data folder's urls.json; the JetStream stream is TAKEBACK.",
            }
        },
        "channels": {name: _channel(name) for name in types},
        "operations": {
            f"send-{name}": {
                "action": "send",
                "channel": {"$ref": f"#/channels/{name}"},
                "summary": _summary(name),
            }
            for name in types
        },
        "components": {"messages": {name: _message(name) for name in types}},
    }


def _channel(name: str) -> dict[str, Any]:
    return {
        "address": f"takeback.{{campaign}}.{name}",
        "parameters": {"campaign": {"description": "The campaign's id; `*` for all."}},
        "messages": {name: {"$ref": f"#/components/messages/{name}"}},
    }


def _message(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "summary": _summary(name),
        "payload": {
            "schemaFormat": "application/schema+json;version=draft-2020-12",
            "schema": {"$ref": f"./events/{name}.json"},
        },
    }


def _summary(name: str) -> str:
    return (EVENT_DATA[name].__doc__ or name).strip().splitlines()[0]
