"""Apache Kafka's brokers replaced by klamm's nodes on the same log directories, one after another, and back.

    python -m tests.campaign.rolling_replacement --protocols 2.8 3.9 [--rounds 2] [--seed 1]

Three brokers under load: idempotent producers with acks=all, transactional copiers, a consumer group, and a compacted
topic with its cleaner at work. The first round ends brokers by controlled shutdown, the second by SIGKILL, and so on. A
line tells each replacement. After each one the replicas are compared, and what the broker had below the high watermarks
must still be there, byte for byte; at the end no record may be lost or duplicated, and DumpLogSegments of Apache Kafka
must find nothing wrong with any file that klamm wrote.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.support.mixed_checks import Checked, print_problems
from tests.support.rolling_replacement import BROKERS, Load, RollingReplacement, three_brokers


def print_step(step: Checked, protocol: str) -> bool:
    """Print the lines of a step; whether nothing was wrong."""
    for line in step.text.splitlines():
        print(f"{protocol:4} {line}", flush=True)
    print_problems(step.problems)
    return not step.problems


def run(options: argparse.Namespace, directory: Path, protocol: str) -> bool:
    """One cluster, there and back `options.rounds` times; whether nothing was wrong."""
    cluster = three_brokers(directory / "cluster", protocol)
    load = Load(directory / "clients", cluster, options.rate, options.seed)
    try:
        cluster.start_first(BROKERS[0])
        cluster.start_others()
        load.start()
        replacement = RollingReplacement(cluster, load)
        clean = True
        for number in range(options.rounds):
            for _ in ("there", "and back"):
                for broker_id in BROKERS:
                    clean &= print_step(
                        replacement.replace(broker_id, kill=(number % 2 == 1) != (options.first == "kill")), protocol
                    )
        return print_step(replacement.finish(), protocol) and clean
    except AssertionError as error:
        print(f"{protocol:4} not healed: {error}", flush=True)
        return False
    finally:
        load.close()
        cluster.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="there and back; every second round by SIGKILL")
    parser.add_argument("--first", choices=("stop", "kill"), default="stop", help="how the first round ends brokers")
    parser.add_argument("--protocols", nargs="+", default=["2.8", "3.9"], help="inter.broker.protocol.version")
    parser.add_argument("--rate", type=int, default=60, help="records per second of each producer")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--directory", type=Path, help="keep everything there")
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="klamm-replacement-"))
    clean = True
    for protocol in options.protocols:
        clean &= run(options, directory / protocol, protocol)
    if clean and options.directory is None:
        shutil.rmtree(directory, ignore_errors=True)
    print("nothing lost, nothing different" if clean else f"kept: {directory}", flush=True)
    sys.exit(0 if clean else 1)


if __name__ == "__main__":
    main()
