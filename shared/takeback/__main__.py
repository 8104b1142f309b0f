"""`python -m takeback`, the same as `takeback`."""

from takeback.cli import app

app()
