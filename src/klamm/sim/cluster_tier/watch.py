"""What a run notices by itself: operations on disks, and errors that nodes log and nobody foresaw."""

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Final

import structlog

from klamm.log.names import LOG, SWAP, DirectoryKind, DirectoryName, offset_of, parse_directory
from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.logs_on_disk import DiskLogs
from klamm.sim.cluster_tier.trace import CallFailed, DiskEvent, Expired, LogReplaced, Truncated, WrittenAfterError
from klamm.sim.disk import DiskObserver

_ERROR: Final = 40
_FAILING: Final = ("write", "sync")


class DiskWatch(DiskObserver):
    """Tells of truncations of logs, and of writes to a log file after an error; of one run of one process."""

    def __init__(self, node: int, logs: DiskLogs, tell: Callable[[DiskEvent], None]) -> None:
        self._node = node
        self._logs = logs
        self._tell = tell
        self._refused: set[str] = set()

    def on_write(self, path: str) -> None:
        """Report a write to a file after an earlier error of that file."""
        if path in self._refused:
            self._tell(WrittenAfterError(self._node, path))

    def on_truncate(self, path: str, size: int) -> None:
        """Report that the log of a partition is truncated."""
        p, base = _segment(path)
        if p is None or (log := self._logs.of(p)) is None:
            return
        self._tell(Truncated(self._node, p, log.end_below(base, size), log.end))

    def on_remove(self, path: str) -> None:
        """Report that the end of a log was truncated by removing a segment; a removal at its beginning is retention.

        A segment with a `.swap` file is replaced, not removed.
        """
        p, base = _segment(path)
        if p is None or (log := self._logs.of(p)) is None or self._logs.disk.inode_exists(path + SWAP):
            return
        if base > log.start or log.is_single:
            self._tell(Truncated(self._node, p, base, log.end))
        else:
            self._tell(Expired(self._node, p, log.end_of_first))

    def on_directory_renamed(self, source: str, target: str) -> None:
        """Report that a log is replaced by its copy in another log directory."""
        copied, renamed = _directory(source), _directory(target)
        if copied is None or renamed is None or copied.kind is not DirectoryKind.FUTURE:
            return
        log, copy = self._logs.of(copied.partition), self._logs.read(source)
        if renamed.kind is DirectoryKind.LIVE and log is not None:
            self._tell(
                LogReplaced(
                    self._node,
                    copied.partition,
                    tuple(log.identities()),
                    copy.start,
                    tuple(copy.identities()),
                    log.end_on_device(self._logs.disk),
                    copy.end_on_device(self._logs.disk),
                )
            )

    def on_error(self, call: str, path: str) -> None:
        """Report that an operation failed; on a `.log` file, record it, because the file must not be written then."""
        self._tell(CallFailed(self._node))
        if call in _FAILING and path.endswith(LOG):
            self._refused.add(path)


def _segment(path: str) -> tuple[TopicPartition | None, int]:
    """Partition and base offset of a segment file in use; None for other paths."""
    directory, _, name = path.rpartition("/")
    base = offset_of(name)
    if base is None or not name.endswith(LOG):
        return None, -1
    found = _directory(directory)
    return (found.partition if found is not None and found.kind is DirectoryKind.LIVE else None), base


def _directory(path: str) -> DirectoryName | None:
    """Partition and kind of a log's directory; None for other paths."""
    try:
        return parse_directory(path.rpartition("/")[2])
    except ValueError:
        return None


@contextlib.contextmanager
def unexpected_errors(tell: Callable[[str], None]) -> Iterator[None]:
    """Within the block, report every log line with an exception, and print no log lines."""

    def take(logger: Any, method: str, event: Any) -> Any:
        """Report a log line with an exception, and drop every line."""
        error = event.get("exc_info")
        if error:
            tell(f"{event.get('event')}: {describe(error)}")
        raise structlog.DropEvent

    was = structlog.get_config()
    structlog.configure(processors=[take], wrapper_class=structlog.make_filtering_bound_logger(_ERROR))
    try:
        yield
    finally:
        structlog.configure(**was)


def describe(error: Any) -> str:
    """The text of an exception, with the lines where it was raised."""
    found = sys.exc_info()[1] if error is True else error
    if not isinstance(found, BaseException):
        return repr(found)
    frames = traceback.extract_tb(found.__traceback__)[-3:]
    where = " < ".join(f"{f.filename.rpartition('/')[2]}:{f.lineno}" for f in reversed(frames))
    return f"{found!r} at {where}"
