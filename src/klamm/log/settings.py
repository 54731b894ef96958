"""The broker configs of the log manager, the log cleaner and the search for damaged records."""

from dataclasses import dataclass
from typing import Final

from klamm.log.cleaner.job import BYTES_PER_KEY
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


UNLIMITED: Final = 1.7976931348623157e308


BUFFERS_PER_READ: Final = 4
"""What is read at once is decoded at once: vectors over 2 MiB take half as long as those over 512 KiB."""


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """`log.cleaner.` and these names: buffers in bytes, times in ms."""

    enable: bool = True
    threads: int = 1
    dedupe_buffer_size: int = 128 << 20
    io_buffer_load_factor: float = 0.9
    io_buffer_size: int = 512 << 10
    io_max_bytes_per_second: float = UNLIMITED
    backoff_ms: int = 15_000

    @property
    def map_capacity(self) -> int:
        """The number of keys that each cleaner thread's offset map holds; at least one."""
        return max(1, int(self.dedupe_buffer_size / max(1, self.threads) * self.io_buffer_load_factor / BYTES_PER_KEY))

    @property
    def bytes_per_second(self) -> float:
        """How many bytes per second each cleaner thread may read and write: its share of `io_max_bytes_per_second`."""
        return self.io_max_bytes_per_second / max(1, self.threads)

    @property
    def read_bytes(self) -> int:
        """How many bytes each cleaner thread reads at once: its share of four times `log.cleaner.io.buffer.size`."""
        return BUFFERS_PER_READ * self.io_buffer_size // max(1, self.threads)


@dataclass(frozen=True, slots=True)
class ScrubberSettings:
    """`klamm.log.scrub.` and these names."""

    bytes_per_second: int = 8 << 20
    """0: no segment is read in the background."""
    interval_ms: int = 7 * 86_400_000
