"""The broker configs of the log manager."""

from dataclasses import dataclass

from klamm.log.open_files import DEFAULT_MAX_OPEN_FILES


@dataclass(frozen=True, slots=True)
class LogManagerSettings:
    """Broker configs of the same names, in ms."""

    recovery_threads_per_directory: int = 1
    retention_check_interval_ms: int = 300_000
    initial_task_delay_ms: int = 30_000
    flush_scheduler_interval_ms: int = 2**63 - 1
    recovery_checkpoint_interval_ms: int = 60_000
    log_start_checkpoint_interval_ms: int = 60_000
    producer_expiration_ms: int = 86_400_000
    producer_expiration_check_interval_ms: int = 600_000
    max_open_files: int = DEFAULT_MAX_OPEN_FILES
