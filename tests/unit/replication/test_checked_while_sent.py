"""Large fetches of closed segments: their checksums are checked as the client reads."""

from typing import cast

import pytest
from tests.support.real_logs import DiskWithoutThreads
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.replication.fetching import at, one
from tests.unit.replication.runs import Run

from klamm.log.errors import SliceLost
from klamm.log.file_slice import FileSlice
from klamm.log.log import Log
from klamm.log.segment import Segment
from klamm.model.errors import ErrorCode
from klamm.wire.records import batches

BATCHES = 40


async def with_a_closed_segment(cluster: ReplicaCluster, batch_bytes: int = 5_000) -> Segment:
    """A leader with a segment of many batches, which is rolled."""
    await cluster.elect(1, (1,), (1,), tell=[1])
    for number in range(BATCHES):
        assert await cluster.produce(1, b"%02d" % number * (batch_bytes // 2)) is ErrorCode.NONE
    log = cast(Log, cluster.log(1))
    segment = log.segments.active
    log.roll()
    return segment


def damage(segment: Segment, number: int) -> None:
    """Change the last byte of a batch."""
    content = DiskWithoutThreads().read(segment.log_path)
    last = [header.position + header.size - 1 for header in batches(content)][number]
    DiskWithoutThreads().open(segment.log_path).pwrite([bytes([content[last] ^ 0x40])], last)


def sent(records: object, piece: int = 10_000) -> bytes:
    """What a client gets that reads everything."""
    assert isinstance(records, FileSlice)
    content = b""
    while len(content) < len(records):
        found = records.read_cached(len(content), piece)
        assert found
        content += found
    return content


def offsets(records: object) -> list[int]:
    content = sent(records) if isinstance(records, FileSlice) else bytes(cast(bytes, records))
    return [header.base_offset for header in batches(content)]


def test_a_client_that_does_not_read_costs_no_check_of_all_its_records(
    run_on_disk: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        segment = await with_a_closed_segment(cluster)
        pread = DiskWithoutThreads().read(segment.log_path)
        monkeypatch.setattr("klamm.log.file_slice.intact_bytes_of_file", None)
        data = await one(cluster, at(0))
        assert (data.error, sent(data.records)) == (ErrorCode.NONE, pread)
        assert cluster.complaints == []

    run_on_disk(scenario, brokers=(1,))


@pytest.mark.parametrize(("batch_bytes", "damaged"), [(5_000, 30), (100_000, 0), (100_000, 3)])
def test_damage_that_is_met_while_records_are_sent_ends_the_response_and_the_next_one_before_it(
    run_on_disk: Run, batch_bytes: int, damaged: int
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        damage(await with_a_closed_segment(cluster, batch_bytes), damaged)
        first = await one(cluster, at(0))
        with pytest.raises(SliceLost, match=f"offset {damaged}"):
            sent(first.records)
        assert cluster.complaints == [(1, P0, 0)]

        again = await one(cluster, at(0))
        if damaged:
            assert offsets(again.records) == list(range(damaged))
        else:
            assert again.error is ErrorCode.CORRUPT_MESSAGE
        assert (await one(cluster, at(damaged))).error is ErrorCode.CORRUPT_MESSAGE

    run_on_disk(scenario, brokers=(1,))


@pytest.mark.parametrize(("damaged", "params"), [(2, {}), (30, {"knows_zstd": False})])
def test_damage_at_the_beginning_or_in_records_to_convert_is_met_before_they_are_sent(
    run_on_disk: Run, damaged: int, params: dict[str, bool]
) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        damage(await with_a_closed_segment(cluster), damaged)
        data = await one(cluster, at(0), **params)
        assert offsets(data.records) == list(range(damaged))
        assert cluster.complaints == [(1, P0, 0)]

    run_on_disk(scenario, brokers=(1,))
