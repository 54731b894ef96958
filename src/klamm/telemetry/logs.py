"""How a node's log looks: one line per event, with keys. Set up once per process."""

import logging
from typing import Final

import structlog

LEVELS: Final = ("debug", "info", "warning", "error")


def configure_logs(level: str = "info") -> None:
    """Lines go to standard output: time, level, event, keys. Raises KeyError for a level not in `LEVELS`."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], drop_missing=True),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        cache_logger_on_first_use=True,
    )
