"""Lines about a pipeline: one for each micro-batch of a run, and what `klamm pipeline status` prints."""

from datetime import UTC, datetime

from klamm.pipeline.position import Checkpoint
from klamm.pipeline.spec import Spec
from klamm.pipeline.state import BatchStatus, Status


def batch_line(batch: BatchStatus) -> str:
    """Return one line about a micro-batch: rows, speed, lag, and the seconds of its parts."""
    parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in batch.parts_s.items())
    return (
        f"batch {batch.batch}: {batch.rows:,} rows, {batch.dead_letters:,} of them dead letters, "
        f"{batch.rows_per_s:,.0f} rows/s, lag {sum(batch.lag.values()):,}; {batch.seconds:.2f} s: {parts}"
    )


def status_lines(spec: Spec, status: Status | None, checkpoint: Checkpoint, *, is_running: bool) -> list[str]:
    """Return the lines about the state of a pipeline and its last run."""
    lines = [f"The pipeline {spec.name} {'is running' if is_running else 'is not running'}."]
    if status is None:
        return [*lines, "It has not run yet."]
    lines.append(f"Its last run began at {_time(status.started_ms)}: {_ending(status, is_running=is_running)}.")
    lines.append(f"That run read {status.rows:,} rows; {status.dead_letters:,} of them are dead letters.")
    if status.last_batch is not None:
        lines.append(f"Last micro-batch, {_time(status.last_batch.ended_ms)}: {batch_line(status.last_batch)}")
    if checkpoint.is_interrupted and not is_running:
        lines.append(f"Micro-batch {checkpoint.planned} was interrupted; the next run completes it.")
    if status.error is not None:
        lines.append(f"Last error: {status.error}")
    return lines


def _ending(status: Status, *, is_running: bool) -> str:
    """Return how the last run of a pipeline ended, as text."""
    if is_running:
        return "it goes on"
    if status.ended_ms is None:
        return "it was killed"
    return f"it {'failed' if status.error else 'ended'} at {_time(status.ended_ms)}"


def _time(ms: int) -> str:
    """Return a time in UTC for people."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
