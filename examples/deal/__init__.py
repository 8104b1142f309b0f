"""Deal D-881 (E2): one piece of work that crosses several systems, each with its own way back, or none."""
