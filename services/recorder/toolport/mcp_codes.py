"""What a JSON-RPC error says about a request: MCP's own refusals, and what the port's transports add."""

import mcp_types as types

NOT_SENT = 77_001
"""The request surely did not leave. This and the following are codes that no server uses."""
REFUSED = 77_002
"""The server refused it without running anything."""
SESSION_GONE = 77_003
"""The server was restarted: connect anew and ask again."""
FAILED = 77_004
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

NO_ANSWERS = frozenset({NOT_SENT, REFUSED, SESSION_GONE, FAILED, types.REQUEST_TIMEOUT, types.CONNECTION_CLOSED})
"""Said by this side, of the way to the server; every other error is the server's own answer."""

CLOSED = "Connection closed"
"""How the MCP client itself words a connection that has ended; a server's own error of that code reads otherwise."""
