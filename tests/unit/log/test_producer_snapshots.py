"""Snapshots of the producer state: the layout of Kafka, and damage."""

import pytest
from tests.unit.log.support import Partition, batch

from klamm.log.errors import CorruptFile
from klamm.log.names import SNAPSHOT, offset_of
from klamm.log.producers import Producers
from klamm.log.snapshots import parse_snapshot, snapshot_bytes
from klamm.wire.records import header_at


def test_a_segment_that_begins_behind_a_gap_has_its_producer_state_snapshot(orders: Partition) -> None:
    """A compacted leader leaves gaps. A snapshot that is not named like its segment would stay when that is deleted."""
    log = orders.open(segment_bytes=200)
    for base in range(0, 500, 100):
        log.append_as_follower(batch("a" * 100, producer=(7, 0, base), base_offset=base, epoch=0))

    names = orders.world.disk.list_directory(log.directory)

    assert [offset_of(name) for name in names if name.endswith(SNAPSHOT)] == [1, 101, 201, 301]
    assert [segment.base_offset for segment in log.segments] == [0, 1, 101, 201, 301]
    log.truncate_to(401)
    log.truncate_to(350)
    assert (log.end_offset, log.producers.by_id[7].last_sequence) == (301, 300)


def test_a_producer_state_snapshot_has_kafkas_layout() -> None:
    producers = Producers()
    producers.on_batch_written(header_at(batch("a", "b", producer=(5, 2, 40))), 10, 99)

    content = snapshot_bytes(producers.by_id)

    assert content[:2] == b"\0\1"
    assert content[6:10] == b"\0\0\0\1"
    assert content[10:].hex() == "0000000000000005" "0002" "00000029" "000000000000000b" "00000001" + (
        "0000000000000063" "ffffffff" "ffffffffffffffff"
    )  # fmt: skip
    (back,) = parse_snapshot(content, "x")
    assert (back.epoch, back.last_sequence, back.last_offset, back.transaction_start) == (2, 41, 11, None)


@pytest.mark.parametrize("cut", range(56))
def test_an_incomplete_producer_state_snapshot_raises_corrupt_file(cut: int) -> None:
    producers = Producers()
    producers.on_batch_written(header_at(batch("a", producer=(5, 2, 40))), 10, 99)
    content = snapshot_bytes(producers.by_id)
    assert len(content) == 56

    with pytest.raises(CorruptFile):
        parse_snapshot(content[:cut], "x")


def test_a_producer_state_snapshot_of_another_version_raises_corrupt_file() -> None:
    with pytest.raises(CorruptFile, match="version 2"):
        parse_snapshot(b"\0\2" + bytes(8), "x")
    with pytest.raises(CorruptFile, match="CRC"):
        parse_snapshot(b"\0\1" + bytes(8), "x")
