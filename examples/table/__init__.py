"""The game table (E1): an application with 15 tools that write, on the bus, each with its own way back."""
