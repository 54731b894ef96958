"""When the files of the offset index and the time index are written."""

from pathlib import Path

import pytest
from tests.unit.log.support import ManualClock, Partition, batch

from klamm.log.indexes import OffsetIndex
from klamm.log.loader import CheckpointedState
from klamm.runtime.disk import File, RealDisk
from klamm.runtime.network import RealNetwork
from klamm.runtime.randomness import RealRandomness
from klamm.runtime.world import World


class RecordingDisk(RealDisk):
    """The real disk; it records the names of files that are opened for writing."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def open(self, path: str, *, create: bool = False) -> File:
        self.written.append(Path(path).name)
        return super().open(path, create=create)


@pytest.fixture
def disk() -> RecordingDisk:
    return RecordingDisk()


@pytest.fixture
def world(clock: ManualClock, disk: RecordingDisk) -> World:
    return World(clock, RealNetwork(), disk, RealRandomness())


def sizes(orders: Partition) -> dict[str, int]:
    """The sizes of the index files by name."""
    return {path.suffix: path.stat().st_size for path in Path(orders.directory).glob("*index")}


def test_closing_a_log_writes_both_index_files(orders: Partition) -> None:
    log = orders.open(index_interval_bytes=1)
    for value in "ab":
        log.append_as_leader(batch(value), 0)

    log.close()

    assert sizes(orders) == {".index": 8, ".timeindex": 12}


def test_closing_an_empty_log_creates_both_index_files(orders: Partition) -> None:
    orders.open().close()

    assert sizes(orders) == {".index": 0, ".timeindex": 0}


@pytest.mark.parametrize("values", ["", "ab"])
def test_closing_a_log_that_did_not_change_writes_no_index_file(
    orders: Partition, disk: RecordingDisk, values: str
) -> None:
    log = orders.open(index_interval_bytes=1)
    for value in values:
        log.append_as_leader(batch(value), 0)
    log.close()
    disk.written.clear()

    orders.open(CheckpointedState(is_clean=True, recovery_point=len(values))).close()

    assert [name for name in disk.written if name.endswith("index")] == []


def test_closing_a_log_adds_the_entries_of_this_start_to_its_index_files(orders: Partition) -> None:
    log = orders.open(index_interval_bytes=1)
    for value in "ab":
        log.append_as_leader(batch(value), 0)
    log.close()
    log = orders.open(CheckpointedState(is_clean=True, recovery_point=2), index_interval_bytes=1)

    for value in "cd":
        log.append_as_leader(batch(value), 0)
    log.close()

    assert sizes(orders)[".index"] == 16


def test_an_index_file_is_written_again_after_the_index_was_reset(disk: RecordingDisk, tmp_path: Path) -> None:
    path = tmp_path / "0.index"
    index = OffsetIndex(disk, str(path), 0, 1024)
    index.append(1, 100)
    index.write()
    assert index.is_written

    index.reset()

    assert not index.is_written
    index.write()
    assert (path.stat().st_size, index.is_written) == (0, True)
