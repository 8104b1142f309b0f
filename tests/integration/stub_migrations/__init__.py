"""Migrations of the stub service."""
