"""Kill a Spark query that writes exactly once, and its workers, at random moments and inside its commits.

Afterwards the topic that it writes has each record of the topic that it reads once: librdkafka and kafka-python say it.

python -m tests.campaign.spark_sink --kills 20 [--seed 1]
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from tests.support.cluster import Cluster
from tests.support.sink_runs import committed, committed_for_kafka_python
from tests.support.stream_kills import StreamKills, producing

SOURCE, SINK, PARTITIONS = "written", "copied", 4
COMMITS = "klamm-spark-commits"
RATE = 1_000


def run(cluster: Cluster, kills: int, seed: int, directory: Path, rate: int = RATE) -> list[str]:
    """What is wrong at the end, one line for each reader."""
    cluster.create_topic(SOURCE, PARTITIONS)
    cluster.create_topic(SINK, PARTITIONS)
    job = StreamKills(cluster, SOURCE, PARTITIONS, directory, seed)
    options = ("startingOffsets=earliest", "maxOffsetsPerTrigger=2000", f"sink={SINK}")
    job.drain(*options)  # the first run creates the topic of commits
    with producing(cluster.bootstrap, SOURCE, rate) as producer:
        for number in range(kills):
            match number % 3:
                case 0:
                    killed = job.kill_in_commit(COMMITS, *options)
                case 1:
                    killed = job.kill_driver(*options)
                case _:
                    killed = job.kill_worker(*options)
            producer.check()
            print(f"{number + 1:3} killed: {killed}", flush=True)
    job.drain("startingOffsets=earliest", f"sink={SINK}")
    return check(cluster)


def check(cluster: Cluster) -> list[str]:
    """What each reader finds too much and too little."""
    expected = Counter(f"{n}-{offset}" for n in range(PARTITIONS) for offset in range(end_offset(cluster, SOURCE, n)))
    wrong = []
    for reader, read in (("librdkafka", committed), ("kafka-python", committed_for_kafka_python)):
        found = Counter(read(cluster.bootstrap, SINK, PARTITIONS))
        if found != expected:
            more, less = list((found - expected).elements()), list((expected - found).elements())
            wrong.append(f"{reader}: of {expected.total()} records {len(more)} too much {more[:3]}, "
                         f"{len(less)} too little {less[:3]}")  # fmt: skip
    if not wrong:
        print(f"{expected.total()} records")
    return wrong


def end_offset(cluster: Cluster, topic: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "ends"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
    consumer.close()
    return int(end)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Cluster(Path(directory, "cluster")) as cluster:
        wrong = run(cluster, options.kills, options.seed, Path(directory, "job"))
    print("\n".join(wrong) or f"every record once after {options.kills} kills")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
