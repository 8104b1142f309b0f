"""What a JSON-RPC error says about a request: MCP's own refusals, and what the port's transports add."""

import secrets

import mcp_types as types
from mcp import MCPError

NOT_SENT = 100_000 + 4 * secrets.randbelow(250_000_000)
"""The request surely did not leave. This and the following are codes that no server can know, so that none is believed them."""
REFUSED = NOT_SENT + 1
"""The server refused it without running anything."""
SESSION_GONE = NOT_SENT + 2
"""The server was restarted: connect anew and ask again."""
FAILED = NOT_SENT + 3
"""It was sent, and what came of it is unknown."""

PROTOCOL_REFUSALS = frozenset(
    {
        types.INVALID_PARAMS,
        types.METHOD_NOT_FOUND,
        types.HEADER_MISMATCH,
        types.UNSUPPORTED_PROTOCOL_VERSION,
        types.MISSING_REQUIRED_CLIENT_CAPABILITY,
    }
)
"""The server looked at the request and ran nothing."""

CLOSED = "Connection closed"
"""How the MCP client itself words a connection that has ended; a server's own error of that code reads otherwise."""


def of_the_way(error: MCPError) -> bool:
    """Whether *error* was made on the way to the server; any other is the server's own answer."""
    if error.code == types.CONNECTION_CLOSED:
        return error.message == CLOSED
    return error.code in (NOT_SENT, REFUSED, SESSION_GONE, FAILED, types.REQUEST_TIMEOUT)
