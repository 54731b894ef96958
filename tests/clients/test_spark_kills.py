"""A Spark query that is killed and started again has each record once; `make prove` kills it twenty times."""

from pathlib import Path

import pytest
from tests.support.cluster import Cluster
from tests.support.stream_kills import StreamKills, producing

TOPIC, PARTITIONS = "stream-kills", 4
OPTIONS = ("startingOffsets=earliest", "maxOffsetsPerTrigger=2000")


def test_a_streaming_query_with_killed_driver_and_workers_outputs_each_record_once(
    cluster: Cluster, tmp_path: Path, client_rounds: int
) -> None:
    if client_rounds == 1:
        pytest.skip("it takes more than a minute: `make prove` runs it")
    cluster.create_topic(TOPIC, PARTITIONS)
    job = StreamKills(cluster, TOPIC, PARTITIONS, tmp_path / "job", seed=3)

    with producing(cluster.bootstrap, TOPIC, 1_000):
        job.kill_driver(*OPTIONS)
        job.kill_worker(*OPTIONS)
    job.drain(*OPTIONS)

    assert job.check() == []
