"""Flushed bytes that a start has to cut off a log are kept beside it."""

from dataclasses import replace
from pathlib import Path

from tests.unit.log.faulty_disk import FaultyDisk
from tests.unit.log.support import Partition, batch

from klamm.log.loader import CheckpointedState


def with_unreadable_header(orders: Partition, after: int) -> tuple[Path, bytes]:
    """A log of one segment whose batch behind so many has the length 0; the segment's file and the bytes from there."""
    log = orders.open()
    for number in range(after + 3):
        log.append_as_leader(batch(str(number)), 0)
    segment = log.segments.from_slot(0)[0]
    position, content = after * len(batch("0")), Path(segment.log_path).read_bytes()
    damaged = content[: position + 8] + bytes(4) + content[position + 12 :]
    Path(segment.log_path).write_bytes(damaged)
    return Path(segment.log_path), damaged[position:]


def test_flushed_bytes_after_an_unreadable_header_are_saved_in_a_file_that_a_note_names(orders: Partition) -> None:
    segment, rest = with_unreadable_header(orders, after=4)

    back = orders.open(CheckpointedState(is_clean=True, recovery_point=7))

    assert back.end_offset == 4
    assert Path(f"{segment}.cut-0").read_bytes() == rest
    assert any(f"cut off are in {segment}.cut-0: remove it" in note for note in back.notes)
    segment.write_bytes(segment.read_bytes() + rest)
    assert orders.open(CheckpointedState(is_clean=True, recovery_point=7)).end_offset == 4
    assert Path(f"{segment}.cut-1").read_bytes() == rest


def test_unflushed_bytes_after_an_unreadable_header_are_not_saved(orders: Partition) -> None:
    segment, _ = with_unreadable_header(orders, after=4)

    back = orders.open(CheckpointedState(recovery_point=4))

    assert back.end_offset == 4
    assert [path.name for path in segment.parent.iterdir() if ".cut" in path.name] == []


class RecordingDisk(FaultyDisk):
    """Notes the file of each write, sync and truncation, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[str] = []

    def refuses(self, path: str) -> bool:
        self.paths.append(path)
        return False


def test_the_bytes_are_written_and_synced_before_the_segment_is_cut(orders: Partition) -> None:
    segment, _ = with_unreadable_header(orders, after=4)
    disk = RecordingDisk()
    orders.world = replace(orders.world, disk=disk)

    orders.open(CheckpointedState(is_clean=True, recovery_point=7))

    assert disk.paths[:3] == [f"{segment}.cut-0", f"{segment}.cut-0", str(segment)]
