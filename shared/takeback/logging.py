"""Log lines as JSON with the campaign, run and entry that they are about (structlog)."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog


def configure_logging(service: str, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Sends structlog and the libraries' own logging to *stream* (standard error), one JSON object a line."""
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level)),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for chatty in ("uvicorn.access", "mcp", "httpx", "httpx2", "faststream", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    structlog.contextvars.bind_contextvars(service=service)
