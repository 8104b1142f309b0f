"""The planner's tables (migrations/versions/0001_schema.sql): all of them are projections of the journal."""

PROJECTION = (
    "members",
    "agents",
    "runs",
    "entries",
    "entry_resources",
    "entry_values",
    "confirmations",
    "plan_facts",
    "plan_targets",
)
"""What a rebuild drops and reads again, beside `positions`."""
