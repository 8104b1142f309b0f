"""The versions of the planner's schema (Alembic); `takeback migrate` and the embedded start run them."""
