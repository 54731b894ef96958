"""The directory of a pipeline: Spark's checkpoint, where a new checkpoint begins, the last status, a lock."""

from collections.abc import Iterator
from contextlib import contextmanager
from posixpath import basename, dirname, join
from typing import Final, TypeVar

import msgspec

from klamm.model.errors import KlammError
from klamm.runtime.disk import Disk
from klamm.runtime.small_files import create_directory

T = TypeVar("T")

RUN: Final = "checkpoint"
REPLAY: Final = "replay-checkpoint"
"""The checkpoint of reading dead letters again."""
_LOCK: Final = "lock"
_START: Final = "start.json"
_STATUS: Final = {RUN: "status.json", REPLAY: "replay-status.json"}


class StateUnusable(KlammError):
    """The directory of a pipeline cannot be used."""


class Start(msgspec.Struct, frozen=True):
    """Where a new checkpoint begins."""

    timestamp_ms: int


class BatchStatus(msgspec.Struct, frozen=True):
    """One micro-batch. `lag` counts records that are not read yet, by partition; `parts_s` are seconds by name."""

    batch: int
    ended_ms: int
    rows: int
    dead_letters: int
    seconds: float
    parts_s: dict[str, float]
    lag: dict[str, int]

    @property
    def rows_per_s(self) -> float:
        """Return the rows per second of this micro-batch."""
        return self.rows / self.seconds if self.seconds else 0.0


class Status(msgspec.Struct, frozen=True):
    """What the last run did: counted from its start at `started_ms`; `ended_ms` is None while it runs or was killed."""

    started_ms: int
    ended_ms: int | None = None
    rows: int = 0
    dead_letters: int = 0
    last_batch: BatchStatus | None = None
    error: str | None = None


class StateDirectory:
    def __init__(self, disk: Disk, path: str, query: str = RUN) -> None:
        self.path = path
        self._disk = disk
        self._query = query

    @property
    def checkpoint(self) -> str:
        """The directory of Spark's checkpoint."""
        return join(self.path, self._query)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the directory and hold its lock. Raises StateUnusable."""
        try:
            create_directory(self._disk, self.path)
            lock = self._disk.lock(join(self.path, _LOCK))
        except OSError as error:
            raise StateUnusable(
                f"Cannot use the directory {self.path}: {error.strerror}. Set the field state to another one."
            ) from error
        if lock is None:
            raise StateUnusable(
                f"The directory {self.path} is in use: the pipeline runs already. Stop the other run first."
            )
        try:
            yield
        finally:
            lock.release()

    def is_running(self) -> bool:
        """Whether another process runs the pipeline."""
        path = join(self.path, _LOCK)
        if not self._disk.exists(path):
            return False
        lock = self._disk.lock(path)
        if lock is not None:
            lock.release()
        return lock is None

    def query_id(self) -> str | None:
        """The id of the query that the checkpoint belongs to; None before its first run. Raises StateUnusable."""
        stored = self._read(join(self._query, "metadata"))
        return None if stored is None else str(self._decode(stored, dict[str, str], "metadata")["id"])

    def last_number(self, kind: str) -> int | None:
        """The last micro-batch of which the checkpoint has a file: `offsets` once planned, `commits` once complete."""
        directory = join(self.checkpoint, kind)
        names = self._disk.list_directory(directory) if self._disk.exists(directory) else []
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def sync_batch(self, number: int) -> None:
        """Make the planned offsets of a micro-batch durable, which Spark does not: a sink knows only its number.

        Without them it would be planned again with more records, and taken for written. Raises OSError.
        """
        offsets = join(self.checkpoint, "offsets")
        files = [join(self.checkpoint, "metadata"), join(offsets, str(number))]
        checksums = [join(dirname(path), f".{basename(path)}.crc") for path in files]
        for path in files + [path for path in checksums if self._disk.exists(path)]:
            file = self._disk.open(path)
            try:
                file.sync()
            finally:
                file.close()
        for directory in (offsets, self.checkpoint, self.path):
            self._disk.sync_directory(directory)

    def start(self) -> Start | None:
        """Return where `klamm pipeline reset` lets the next run begin; None where the pipeline's file decides."""
        stored = self._read(_START)
        return None if stored is None else self._decode(stored, Start, _START)

    def status(self) -> Status | None:
        """The status of the last run; None where there was none."""
        name = _STATUS[self._query]
        stored = self._read(name)
        return None if stored is None else self._decode(stored, Status, name)

    def write_status(self, status: Status) -> None:
        """Replace the stored status of the pipeline's last run. Raises StateUnusable."""
        path = join(self.path, _STATUS[self._query])
        try:
            self._disk.write_atomically(path, msgspec.json.encode(status))
        except OSError as error:
            raise StateUnusable(
                f"Cannot write {path}: {error.strerror}. Correct the cause, for example by freeing space, and run the "
                "pipeline again; it continues where it ended."
            ) from error

    def reset(self, start: Start) -> None:
        """Remove the checkpoint; the next run begins at `start`. A crash leaves either the old or the new state."""
        self._disk.write_atomically(join(self.path, _START), msgspec.json.encode(start))
        removed = self._disk.temporary_name(self.checkpoint)
        if self._disk.exists(self.checkpoint):
            self._disk.rename(self.checkpoint, removed)
            self._disk.sync_directory(self.path)
            self._disk.remove_tree(removed)

    def _read(self, name: str) -> bytes | None:
        """The content of a file; None where it does not exist."""
        path = join(self.path, name)
        return self._disk.read(path) if self._disk.exists(path) else None

    def _decode(self, content: bytes, kind: type[T], name: str) -> T:
        """Decode JSON. Raises StateUnusable."""
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.DecodeError as error:
            raise StateUnusable(
                f"The file {name} in {self.path} is damaged: {error}. Remove it to begin without it."
            ) from error
