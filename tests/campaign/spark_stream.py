"""Kill a Spark query and its workers at random moments; afterwards its table has every offset of the topic once.

python -m tests.campaign.spark_stream --kills 20 [--seed 1]
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.stream_kills import StreamKills, producing

TOPIC, PARTITIONS = "streamed", 8
RATE = 2_000


def run(kills: int, seed: int, directory: Path) -> list[str]:
    """What is wrong at the end, one line for each partition."""
    with Cluster(directory / "cluster") as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        job = StreamKills(cluster, TOPIC, PARTITIONS, directory / "job", seed)
        options = ("startingOffsets=earliest", "maxOffsetsPerTrigger=4000")
        with producing(cluster.bootstrap, TOPIC, RATE) as producer:
            for number in range(kills):
                killed = job.kill_worker(*options) if number % 2 else job.kill_driver(*options)
                producer.check()
                print(f"{number + 1:3} killed: {killed}", flush=True)
        job.drain("startingOffsets=earliest")
        return job.check()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        wrong = run(options.kills, options.seed, Path(directory))
    print("\n".join(wrong) or f"every offset once after {options.kills} kills")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
