"""What every service measures of itself, in Prometheus' terms; each service adds its own beside these."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

EVENTS_APPLIED = Counter("takeback_events_applied_total", "Events applied to a projection", ["service", "type"])
PROJECTION_LAG = Gauge("takeback_projection_lag_events", "Events behind the journal's heads when compared", ["service"])
CALLS = Counter("takeback_calls_total", "Calls by policy decision and ending status", ["decision", "status"])
OVERHEAD = Histogram(
    "takeback_call_overhead_seconds",
    "Time that the recorder adds to a call, the tool's own time left out",
    buckets=(0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5),
)
OUTBOX_DEPTH = Gauge("takeback_outbox_depth", "Records that JetStream has not acknowledged yet")
OUTBOX_AGE = Gauge("takeback_outbox_age_seconds", "Age of the oldest record that JetStream has not acknowledged")
PLANS = Counter("takeback_plans_total", "Plans by the status they entered", ["status"])
RECEIPTS = Counter("takeback_receipts_total", "Receipts of reversal steps by outcome", ["outcome"])
STREAM_CLIENTS = Gauge("takeback_stream_clients", "Clients that listen to a live stream")
