"""Scripted agents: they use nothing but the HTTP API, as an agent with a model would, and need no model."""
