"""Kill a pipeline of flights and its workers at random moments; then topic = table + dead letters, each record once.

python -m tests.campaign.pipeline --kills 20 [--seed 1]
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.pipeline_kills import PARTITIONS, PipelineKills, broken_flights, producing


def run(kills: int, seed: int, directory: Path) -> list[str]:
    """What is wrong at the end."""
    with Cluster(directory / "cluster") as cluster:
        for topic in ("flights", "flights.dead-letters"):
            cluster.create_topic(topic, PARTITIONS)
        job = PipelineKills(cluster, directory / "job", seed)
        with producing(cluster.bootstrap, broken_flights(seed), 2_000) as produced:
            for number in range(kills):
                killed = job.kill(worker=bool(number % 2))
                produced.check()
                print(f"{number + 1:3} killed: {killed}", flush=True)
        print(f"{produced.count:,} flights are in the topic; the last run reads what is left", flush=True)
        job.drain()
        return job.check(produced)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        wrong = run(options.kills, options.seed, Path(directory))
    print("\n".join(wrong) or f"topic = table + dead letters, each record once, after {options.kills} kills")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
