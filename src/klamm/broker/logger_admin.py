"""Log levels of this node, changed while it runs and reset at a restart. Source: RuntimeLoggerManager.java (3.9)."""

from collections.abc import Sequence
from typing import Final

import structlog

from klamm.broker.config_admin import Change, Operation, Outcome, Refusal, check_broker_id, check_request
from klamm.model.errors import ErrorCode
from klamm.telemetry.logs import KAFKA_LEVELS, ROOT, LogLevels

log = structlog.get_logger("node")
_NAMES: Final = {operation.value: operation.name for operation in Operation}


class LoggerAdmin:
    """Serves IncrementalAlterConfigs for log levels."""

    def __init__(self, broker_id: int, levels: LogLevels) -> None:
        self._broker_id = broker_id
        self._levels = levels

    def increment(self, name: str, changes: Sequence[Change], *, validate_only: bool) -> Outcome:
        """Set and remove log levels; apply all changes, or none."""
        try:
            for _ in check_request(changes):
                pass
            self._check_broker(name)
            for change in changes:
                self._check_change(change)
        except Refusal as refusal:
            return refusal.outcome
        if not validate_only:
            for change in changes:
                self._apply(change)
        return Outcome()

    def _apply(self, change: Change) -> None:
        """Set or remove one log level."""
        if change.operation == Operation.DELETE:
            self._levels.unset(change.name)
        else:
            assert change.value is not None, "check_request refuses null values"
            self._levels.set(change.name, change.value)
        log.warning("log level changed", logger=change.name, to=self._levels.all()[change.name])

    def _check_broker(self, name: str) -> None:
        """Raise Refusal where the resource is not this broker."""
        check_broker_id(name, self._broker_id, f"Unexpected node id. Expected {self._broker_id}, but received {name}")

    def _check_change(self, change: Change) -> None:
        """Raise Refusal where the logger or the level does not exist, or the operation does not fit."""
        if change.operation in (Operation.APPEND, Operation.SUBTRACT):
            verb = _NAMES[change.operation]
            text = f"{verb} operation is not allowed for the BROKER_LOGGER resource"
            raise Refusal(ErrorCode.INVALID_REQUEST, text)
        if change.name not in self._levels.all():
            raise Refusal(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
        if change.operation == Operation.DELETE and change.name == ROOT:
            text = f"Removing the log level of the {ROOT} logger is not allowed"
            raise Refusal(ErrorCode.INVALID_REQUEST, text)
        if change.operation == Operation.SET and change.value not in KAFKA_LEVELS:
            raise Refusal(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. Valid"
                f" log levels are {', '.join(KAFKA_LEVELS)}",
            )
