"""What a follower refuses of its leader's batches, before it writes a byte of them."""

import random

import pytest
from tests.unit.log.support import NOW_MS, Partition, headers_of, values_of

from klamm.log.loader import CheckpointedState
from klamm.wire.compression import Codec
from klamm.wire.records import CorruptRecords, NewRecord, build_batch, header_at
from klamm.wire.records.batch import sealed_batch
from klamm.wire.records.legacy import Message, encode_messages

MAX_DELTA = 2**31 - 2
"""A batch of 2³¹-1 offsets."""
MARKER = {"attributes": 0x30, "producer_id": 3, "producer_epoch": 0}  # control, transactional


def sent(base_offset: int, value: str = "v", **fields: int) -> bytes:
    """A batch of one record as a leader stored it, whose header says something else; its CRC is right."""
    plain = build_batch([NewRecord(value.encode(), b"", NOW_MS)])
    header = header_at(plain)._replace(base_offset=base_offset, partition_leader_epoch=0, **fields)
    return sealed_batch(header, plain[61:])


def test_a_follower_rolls_a_segment_before_relative_offsets_overflow_the_index(orders: Partition) -> None:
    log = orders.open()

    log.append_as_follower(
        sent(0, "a", last_offset_delta=MAX_DELTA)
        + sent(2**31 - 1, "b", last_offset_delta=MAX_DELTA)
        + sent(2 * (2**31 - 1), "c")
    )
    end, segments = log.end_offset, len(log.segments)
    log.close()

    assert (end, segments) == (2**32 - 1, 2)
    assert orders.open().notes == []
    assert orders.open().end_offset == end


def test_a_follower_begins_a_segment_with_a_compressed_message_of_an_old_format_at_the_logs_end(
    orders: Partition,
) -> None:
    """The message has the offset of its last record; a cleaner would take the first ones for cleaned."""
    log = orders.open(segment_bytes=200)
    for start in (0, 4, 8):
        content = [Message(start + n, NOW_MS, b"key", random.Random(start).randbytes(40)) for n in range(4)]
        log.append_as_follower(encode_messages(content, 1, Codec.GZIP))
    log.append_as_follower(encode_messages([Message(2**31 + 20, NOW_MS, b"key", b"")], 1, Codec.GZIP))

    assert [segment.base_offset for segment in log.segments] == [0, 4, 8, 21]
    log.close()
    assert orders.open(CheckpointedState(is_clean=True)).notes == []


IMPOSSIBLE: dict[str, bytes] = {
    "ends before it begins": sent(1, last_offset_delta=-5),
    "holds no offset": sent(1, last_offset_delta=-1),
    "ends beyond the last offset": sent(2**63 - 2, last_offset_delta=1),
    "control batch without a control key": sent(1, "v", **MARKER),
    "control batch in a codec that does not exist": sent(1, "v", **MARKER | {"attributes": 0x37}),
    "control batch that cannot be decompressed": sent(1, "v", **MARKER | {"attributes": 0x34}),
    "control batch with a negative count": sent(1, "v", **MARKER, record_count=-5),
}


@pytest.mark.parametrize("bad", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_follower_writes_nothing_of_a_batch_with_impossible_header_values(orders: Partition, bad: bytes) -> None:
    log = orders.open()

    with pytest.raises(CorruptRecords):
        log.append_as_follower(sent(0, "before") + bad)

    assert (log.end_offset, log.producers.end_offset) == (1, 1)
    assert values_of(log) == ["before"]
    log.append_as_follower(sent(1, "after"))
    assert values_of(log) == ["before", "after"]


def test_a_huge_compressed_control_batch_is_refused_without_decompression(orders: Partition) -> None:
    bomb = build_batch([NewRecord(bytes(20_000_000), b"\0\0\0\1", NOW_MS)], 4, control=True)  # type: ignore[arg-type]
    header = header_at(bomb)._replace(producer_id=3, producer_epoch=0)

    with pytest.raises(CorruptRecords, match="more than"):
        orders.open().append_as_follower(sealed_batch(header, bomb[61:]))


def test_a_follower_stores_batches_of_the_leader_byte_for_byte(orders: Partition) -> None:
    """Its log must be the leader's, byte for byte; a lie about records is for the leader to refuse."""
    log = orders.open()
    content = sent(0, attributes=7) + sent(1, record_count=1000) + sent(2, last_offset_delta=MAX_DELTA - 2)

    log.append_as_follower(content)

    assert log.read(0, 1 << 20).records == content
    assert [header.base_offset for header in headers_of(log)] == [0, 1, 2]


def test_a_follower_begins_each_segment_at_its_log_end_also_where_compaction_left_a_gap_in_the_leaders_log(
    orders: Partition,
) -> None:
    """So a gap before a segment is not the leader's: a start can tell it from what a power loss took."""
    log = orders.open(segment_bytes=100, cleanup_policy="compact")
    for offset in (0, 70, 500):
        log.append_as_follower(sent(offset, "v" * 30))
    bases = [segment.base_offset for segment in log.segments]
    log.close()

    assert bases == [0, 1, 71]
    back = orders.open(CheckpointedState(compacted_below=0), segment_bytes=100, cleanup_policy="compact")
    assert (back.end_offset, back.possible_loss, back.notes) == (501, None, [])
    assert [header.base_offset for header in headers_of(back, 2)] == [70, 500]


def test_a_follower_begins_a_segment_as_late_as_it_must_after_a_gap_that_no_segment_can_hold(orders: Partition) -> None:
    log = orders.open()

    log.append_as_follower(sent(0) + sent(2**31 + 5))

    assert [segment.base_offset for segment in log.segments] == [0, 6]
