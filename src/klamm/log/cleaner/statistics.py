"""What the cleaner's metrics show. Source: LogCleaner.scala, LogCleanerManager.scala."""

from klamm.log.cleaner.job import CleaningFinished


class CleanerStatistics:
    """Figures of the last selection and of the last cleaning."""

    def __init__(self) -> None:
        self.last_run_ms: int | None = None
        """When logs were last looked at, ms since 1970; None before the first time."""
        self.dirtiest_ratio = 0.0
        self.compaction_delay_s = 0.0
        """How long the most overdue record has waited beyond `max.compaction.lag.ms`."""
        self.map_utilization = 0.0
        self.recopied_ratio = 0.0
        """Bytes written in the last cleaning, as a share of those read."""
        self.cleaning_s = 0.0

    def on_selection(self, now_ms: int, dirtiest_ratio: float, compaction_delay_s: float) -> None:
        """Record, for the metrics, the time of a search for a log to clean and what it found."""
        self.last_run_ms = now_ms
        self.dirtiest_ratio = dirtiest_ratio
        self.compaction_delay_s = compaction_delay_s

    def on_cleaned(self, finished: CleaningFinished, took_s: float) -> None:
        """Record, for the metrics, the figures of a finished cleaning of one log."""
        self.map_utilization = finished.map_utilization
        self.recopied_ratio = finished.written_bytes / max(finished.read_bytes, 1)
        self.cleaning_s = took_s
