"""The versions of the notifier's schema (Alembic); `takeback migrate` and the embedded start run them."""
