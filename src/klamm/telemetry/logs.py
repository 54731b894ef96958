"""A node's log: one line per event, with keys. It is configured once per process; levels can change later."""

import logging
from collections.abc import Mapping
from typing import Any, Final

import structlog

ROOT: Final = "root"
LOGGERS: Final = (
    "config", "controller-channel", "coordinator", "features", "groups", "isr", "journal-topic", "logs", "metrics",
    "net", "node", "producer-ids", "replication", "topics", "transactions", "zookeeper",
)  # fmt: skip
"""The names that modules log under."""
KAFKA_LEVELS: Final[Mapping[str, int]] = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": 5,
    "WARN": logging.WARNING,
}
"""As Kafka's tools name them, sorted."""
_OF_METHODS: Final = {**logging.getLevelNamesMapping(), "EXCEPTION": logging.ERROR, "MSG": logging.INFO}


class LogLevels:
    """The level of each logger; a logger without its own level has that of `root`."""

    def __init__(self, root: str = "INFO") -> None:
        self._levels = {ROOT: root}

    def all(self) -> dict[str, str]:
        """The level of each logger that has one, `root` first."""
        return {name: self._levels.get(name, self._levels[ROOT]) for name in (ROOT, *LOGGERS)}

    def set(self, name: str, level: str) -> None:
        """Set the level of a logger."""
        self._levels[name] = level

    def unset(self, name: str) -> None:
        """Remove the logger's own level, so that the level of `root` applies to it again."""
        assert name != ROOT, "somebody has to say what counts"
        self._levels.pop(name, None)

    def is_enabled(self, name: str, method: str) -> bool:
        """Whether a line logged with `method` under this name is written."""
        level = self._levels.get(name) or self._levels[ROOT]
        return _OF_METHODS.get(method.upper(), logging.INFO) >= KAFKA_LEVELS[level]


class _Logger(structlog.PrintLogger):
    def __init__(self, name: str = ROOT) -> None:
        super().__init__()
        self.name = name


def configure_logs(level: str = "info") -> LogLevels:
    """Write log lines to standard output: time, level, event, keys. Raises KeyError for an unknown level."""
    number = logging.getLevelNamesMapping()[level.upper()]
    levels = LogLevels(next(name for name, value in KAFKA_LEVELS.items() if value == number))

    def drop_disabled_levels(logger: Any, method: str, event: Any) -> Any:
        """Pass the event on if its level is enabled for the logger. Raises DropEvent otherwise."""
        if not levels.is_enabled(logger.name, method):
            raise structlog.DropEvent
        return event

    structlog.configure(
        processors=[
            drop_disabled_levels,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], drop_missing=True),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=_Logger,
        cache_logger_on_first_use=True,
    )
    return levels
