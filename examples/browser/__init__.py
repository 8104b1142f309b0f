"""Computer use: a wiki that nobody here wrote, worked by an agent through its screens, and taken back through its screens."""
