"""Servers that tests break on purpose."""
