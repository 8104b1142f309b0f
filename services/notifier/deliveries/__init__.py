"""Deliveries: e-mail, webhooks and chat, each at least once, with an id by which a repeat can be dropped (N6, N7)."""
