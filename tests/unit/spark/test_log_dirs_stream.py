"""Streaming reads of log directories: the same driver and checkpoint as with brokers."""

from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.log.support import batch
from tests.unit.spark.stored_logs import NoBrokers, fill, log_manager, make_log, new_log, read_planned, stored_options

from klamm.model.ids import TopicPartition
from klamm.spark.errors import BadOption, DataLoss
from klamm.spark.option_set import Reads
from klamm.spark.options import ReadOptions, read_options
from klamm.spark.stream_driver import StreamDriver
from klamm.spark.stream_offsets import StreamOffset, from_json, to_json


def stream_options(directory: Path, **given: str) -> ReadOptions:
    named = {"logDirs": str(directory), "subscribe": "orders", "startingOffsets": "earliest"}
    return read_options(named | given, Reads.STREAM)


def rows_between(driver: StreamDriver, directory: Path, start: StreamOffset, end: StreamOffset) -> list[int]:
    rows = read_planned(stored_options(directory), driver.tasks(start, end, 2), ("offset",))
    return [row["offset"] for row in rows]


async def test_micro_batches_of_a_log_directory_have_each_row_once_as_its_log_grows(tmp_path: Path) -> None:
    async with log_manager(tmp_path) as logs:
        log = new_log(logs)
        await logs.write_high_watermarks()
        driver = StreamDriver(NoBrokers(), stream_options(tmp_path, maxOffsetsPerTrigger="40"))
        offset, offsets = driver.initial(), []
        for _ in range(12):
            log.append_as_leader(batch("a", "b", "c"), 0)
            log.update_high_watermark(log.end_offset)
            await logs.write_high_watermarks()
            start, offset = offset, driver.next_end(from_json(to_json(offset)), unlimited=False)
            offsets += rows_between(driver, tmp_path, start, offset)
        driver.close()

    assert offsets == list(range(36))


async def test_the_offsets_of_a_log_directory_have_cluster_and_topic_id(tmp_path: Path) -> None:
    log = await make_log(tmp_path)
    driver = StreamDriver(NoBrokers(), stream_options(tmp_path))

    end = driver.next_end(driver.initial(), unlimited=True)

    assert (end.cluster_id, set(end.topic_ids)) == ("cluster", {"orders"})
    assert end.next == {TopicPartition("orders", 0): log.end_offset}


async def test_a_checkpoint_of_another_cluster_is_refused(tmp_path: Path) -> None:
    await make_log(tmp_path)
    driver = StreamDriver(NoBrokers(), stream_options(tmp_path))
    other = driver.initial()._replace(cluster_id="other")

    with pytest.raises(BadOption, match=r"is of the cluster other, but the directories of logDirs are of the cluster"):
        driver.next_end(other, unlimited=True)


async def test_a_topic_that_was_created_again_is_data_loss_in_a_stream(tmp_path: Path) -> None:
    await make_log(tmp_path)
    driver = StreamDriver(NoBrokers(), stream_options(tmp_path))
    end = driver.next_end(driver.initial(), unlimited=True)
    async with log_manager(tmp_path) as logs:
        logs.delete(TopicPartition("orders", 0))
        fill(new_log(logs, topic_id=UUID(int=77)))
        await logs.write_high_watermarks()

        with pytest.raises(DataLoss, match="topic orders was deleted and created again"):
            driver.next_end(end, unlimited=True)


async def test_a_stream_goes_on_when_its_topic_gets_a_partition(tmp_path: Path) -> None:
    async with log_manager(tmp_path) as logs:
        fill(new_log(logs), batches=3)
        await logs.write_high_watermarks()
        driver = StreamDriver(NoBrokers(), stream_options(tmp_path))
        first = driver.next_end(driver.initial(), unlimited=True)
        fill(new_log(logs, TopicPartition("orders", 1)), batches=3)
        await logs.write_high_watermarks()

        second = driver.next_end(first, unlimited=True)

        assert rows_between(driver, tmp_path, first, second)
    assert second.first == {TopicPartition("orders", 1): 0}
