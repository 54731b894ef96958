"""`logDirs` with segments that have messages of the formats 0 and 1, as old brokers wrote them."""

from pathlib import Path

import pytest
from tests.support.old_messages import FORMATS_AND_CODECS, message_set, old_records
from tests.unit.log.support import batch
from tests.unit.spark.stored_logs import ORDERS, as_content, log_manager, new_log, read_stored, segment_paths

from klamm.log.checkpoints import CLEANED_OFFSETS, offsets_text
from klamm.log.names import SNAPSHOT
from klamm.wire.compression import Codec, compress
from klamm.wire.records.legacy import Message, encode_message
from klamm.wire.vectors.batches import CorruptBatch


async def store(directory: Path, *contents: bytes, segment_bytes: int = 100_000) -> None:
    """A log directory with orders-0, appended as by a follower of an old leader."""
    async with log_manager(directory) as logs:
        log = new_log(logs, configs={"segment.bytes": str(segment_bytes), "index.interval.bytes": "100"})
        for content in contents:
            log.append_as_follower(content)
        log.update_high_watermark(log.end_offset)


def offsets(directory: Path, **given: str) -> list[int]:
    return [row["offset"] for row in read_stored(directory, columns=("offset", "value"), **given)]


@pytest.mark.parametrize(("magic", "codec"), FORMATS_AND_CODECS)
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_old_messages_in_log_directories_are_rows(
    tmp_path: Path, magic: int, codec: Codec, isolation: str
) -> None:
    records = old_records(magic, range(200))
    sets = [message_set(records[n : n + 5], magic, codec) for n in range(0, 200, 5)]
    await store(tmp_path, *sets, segment_bytes=2_000)
    for snapshot in segment_paths(tmp_path, SNAPSHOT):
        snapshot.unlink()  # the last stable offset comes from the segments then

    rows = read_stored(tmp_path, kafka__isolation__level=isolation)

    assert as_content(rows) == {r.offset: (r.key, r.value, r.timestamp) for r in records}
    assert len(segment_paths(tmp_path)) > 1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_a_range_of_old_messages_in_log_directories_has_only_its_offsets(tmp_path: Path, codec: Codec) -> None:
    await store(tmp_path, *(message_set(old_records(1, range(n, n + 10)), 1, codec) for n in range(0, 100, 10)))

    bounds = {"startingOffsets": '{"orders":{"0":13}}', "endingOffsets": '{"orders":{"0":47}}'}

    assert offsets(tmp_path, **bounds) == list(range(13, 47))


async def test_old_messages_and_batches_of_format_2_in_one_segment_are_read(tmp_path: Path) -> None:
    plain = message_set(old_records(1, (2, 3)), 1, Codec.NONE)
    await store(
        tmp_path,
        message_set(old_records(0, (0, 1)), 0, Codec.SNAPPY),
        plain,
        batch("new", base_offset=4, epoch=0),
        message_set(old_records(0, (5,)), 0, Codec.NONE),
    )

    assert offsets(tmp_path) == list(range(6))


async def test_offsets_missing_between_old_messages_fail_the_read_unless_the_log_was_compacted(tmp_path: Path) -> None:
    await store(tmp_path, message_set(old_records(1, (0, 1, 4)), 1, Codec.NONE))

    with pytest.raises(CorruptBatch, match="with offset 4 does not follow the one with offset 1, although the log"):
        offsets(tmp_path)

    (tmp_path / CLEANED_OFFSETS).write_bytes(offsets_text({ORDERS: 5}))
    assert offsets(tmp_path) == [0, 1, 4]


def damaged(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


async def test_a_damaged_old_message_is_named_with_file_and_byte(tmp_path: Path) -> None:
    plain = [message_set(old_records(1, (n,)), 1, Codec.NONE) for n in (0, 1)]
    message = Message(2, 5, None, compress(Codec.GZIP, damaged(plain[1])))
    await store(tmp_path, *plain, encode_message(message, 1, Codec.GZIP))

    position = len(plain[0] + plain[1])
    with pytest.raises(CorruptBatch, match=rf"orders-0, offset 0: .*/0+\.log, byte {position}: .* CRC does not match"):
        offsets(tmp_path)
