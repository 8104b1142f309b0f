"""What the port's own transports say about a request, as JSON-RPC error codes that no server uses."""

NOT_SENT = 77_001
"""The request surely did not leave."""
REFUSED = 77_002
"""The server refused it without running anything."""
SESSION_GONE = 77_003
"""The server was restarted: connect anew and ask again."""
FAILED = 77_004
"""It was sent, and what came of it is unknown."""
