"""The servers that Takeback starts by itself where no URL names a real one (`takeback serve`, and the tests)."""

from takeback.embedded.errors import EmbeddedServerError, ServerDidNotStart, ServerNotFound
from takeback.embedded.nats import EmbeddedNats
from takeback.embedded.postgres import EmbeddedPostgres
from takeback.embedded.valkey import EmbeddedValkey

__all__ = [
    "EmbeddedNats",
    "EmbeddedPostgres",
    "EmbeddedServerError",
    "EmbeddedValkey",
    "ServerDidNotStart",
    "ServerNotFound",
]
