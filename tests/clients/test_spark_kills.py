"""A Spark query that is killed and started again has each record once; `make prove` kills it twenty times."""

from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.stream_kills import StreamKills, producing

TOPIC, PARTITIONS = "stream-kills", 4
OPTIONS = ("startingOffsets=earliest", "maxOffsetsPerTrigger=2000")


def test_a_query_whose_driver_and_workers_are_killed_has_each_record_once(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic(TOPIC, PARTITIONS)
    job = StreamKills(cluster, TOPIC, PARTITIONS, tmp_path / "job", seed=3)

    with producing(cluster.bootstrap, TOPIC, 1_000):
        job.kill_driver(*OPTIONS)
        job.kill_worker(*OPTIONS)
    job.drain(*OPTIONS)

    assert job.check() == []
