"""Cleanings under way in a worker process: each is advanced a piece at a time, so that it can be slowed or ended."""

from collections.abc import Iterator

from klamm.log.cleaner.job import CleaningFailed, CleaningJob, Progress
from klamm.model.errors import KlammError
from klamm.runtime.disk import Disk

_sessions: dict[str, Iterator[Progress]] = {}


def start_cleaning(token: str, disk: Disk, job: CleaningJob) -> None:
    """Start a cleaning in this worker process; `token` identifies it in later calls."""
    from klamm.log.cleaner.rewriting import clean  # here, since nodes do without NumPy: only worker processes need it

    _sessions[token] = clean(disk, job)


def advance_cleaning(token: str, max_bytes: int) -> Progress:
    """Continue the cleaning until about `max_bytes` were read and written, or an event such as a finished segment.

    Raises KeyError where the process that began it has ended.
    """
    steps = _sessions[token]
    done = 0
    try:
        while done < max_bytes:
            progress = next(steps)
            done += progress.io_bytes
            if progress.event is not None:
                return Progress(done, progress.event)
    except KlammError as error:
        return Progress(done, CleaningFailed(str(error)))
    except OSError as error:
        return Progress(done, CleaningFailed(str(error), error.errno or -1))
    return Progress(done)


def end_cleaning(token: str) -> None:
    """Forget the cleaning with this token, whether it is complete or not."""
    _sessions.pop(token, None)
