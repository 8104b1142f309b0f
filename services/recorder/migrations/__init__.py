"""The versions of the recorder's schema (Alembic); `takeback migrate` and the embedded start run them."""
