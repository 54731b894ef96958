"""A reader keeps its place while the node it reads from is killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.test_spark_source import produce
from tests.support.cluster import Cluster
from tests.unit.spark.scripts import options

from klamm.model.ids import TopicPartition
from klamm.runtime.blocking import RealBlockingWorld
from klamm.spark.decoder import RecordSelection, decode
from klamm.spark.fetch import Fetched, RangeReader
from klamm.spark.ranges import OffsetRange
from klamm.spark.read_client import read_client

COUNT = 20_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as running:
        yield running


def test_a_spark_read_loses_and_duplicates_no_record_when_a_leader_is_killed(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=1)
    produce(cluster, "orders", COUNT, "lz4")
    leader = cluster.metadata().topics["orders"].partitions[0].leader
    given = options(kafka__bootstrap__servers=cluster.bootstrap, kafka__max__partition__fetch__bytes="20000")
    wanted = OffsetRange(TopicPartition("orders", 0), 0, COUNT)
    found: list[int] = []

    with read_client(RealBlockingWorld(), given) as view:
        for fetched in RangeReader(view, wanted):
            assert isinstance(fetched, Fetched), fetched
            if not found:
                cluster.node(leader).kill()
            for rows in decode(fetched.run, RecordSelection(*wanted[:3], ("offset",)), fetched.aborted):
                found += rows.column(0).to_pylist()

    assert found == list(range(COUNT))
