"""How the recorder talks to tool servers: one small port (`port`), MCP and NATS behind it, `open_port` to get one."""
