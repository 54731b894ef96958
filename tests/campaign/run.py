"""Kill, stop, freeze and cut off real nodes under load, then check that nothing acknowledged was lost.

    python -m tests.campaign.run --rounds 30 [--seed 1] [--others] [--kafka] [--namespaces]

Each round kills a random node, every second time the controller's, under acks=all producers, starts it again
and waits until every partition has three in-sync replicas. `--others` adds ZooKeeper gone for 3 s and for 20 s, the
controller frozen past its session, and controlled shutdowns. `--kafka` runs the same on Apache Kafka. `--namespaces`
gives each node and ZooKeeper a network namespace, and adds ROUNDS faults of the network between them; it needs root.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.campaign.network import Network, network_or_exit, place
from tests.campaign.network_faults import NetworkFaults
from tests.support import apache_kafka
from tests.support.cluster import SESSION_TIMEOUT_S, Cluster
from tests.support.faults import FaultCampaign, Recovery
from tests.support.workload import Workload

from klamm.embedded.nodes import klamm_node

TOPIC = "campaign"
PARTITIONS = 6


def run(options: argparse.Namespace, directory: Path, network: Network | None) -> bool:
    command = apache_kafka.broker() if options.kafka else klamm_node
    cluster = Cluster(directory, 3, command=command)
    if network is not None:
        place(cluster, network)
    healed: list[Recovery] = []

    def say(result: Recovery) -> None:
        healed.append(result)
        print(f"{len(healed):3} {result}", flush=True)

    try:
        cluster.start()
        cluster.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
        workload = Workload(cluster.bootstrap, TOPIC, PARTITIONS, options.rate)
        campaign = FaultCampaign(cluster, workload, seed=options.seed, restart_at_once=not options.kafka)
        workload.start()
        for number in range(options.rounds):
            victim = campaign.choose_node(controller=number % 2 == 0)
            say(campaign.kill(victim))
        if network is not None:
            around = NetworkFaults(network, cluster, campaign, random.Random(options.seed))
            for number in range(options.rounds):
                say(around.inject(campaign.choose_node(controller=number % 2 == 0)))
        if options.others:
            for broker_id in (1, 2, 3):
                say(campaign.stop(cluster.node(broker_id)))
            say(campaign.stop_zookeeper(3))
            say(campaign.stop_zookeeper(20))
            say(campaign.freeze(campaign.choose_node(controller=True), SESSION_TIMEOUT_S + 4))
            say(campaign.freeze(campaign.choose_node(controller=False), SESSION_TIMEOUT_S + 4))
        workload.stop()
        verdict = workload.check()
        print(f"\n{verdict}; {len(workload.failures)} refused for good", flush=True)
        for anomaly in (*verdict.lost[:5], *verdict.duplicated[:5], *verdict.reordered[:5], *verdict.misplaced[:5]):
            print(f"  {anomaly}")
        slowest = max(healed, key=lambda h: h.healed_s, default=None)
        print(f"slowest to heal: {slowest}")
        return verdict.is_clean
    except AssertionError as error:
        print(f"\nnot healed: {error}\nkept: {directory}", flush=True)
        return False
    finally:
        cluster.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rate", type=int, default=2_000, help="records per second")
    parser.add_argument("--others", action="store_true", help="also ZooKeeper outages, freezes, controlled shutdowns")
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka's brokers instead of klamm's")
    parser.add_argument("--directory", type=Path, help="keep everything there")
    parser.add_argument("--namespaces", action="store_true", help="a network namespace for each node; needs root")
    options = parser.parse_args()
    if options.kafka and (why := apache_kafka.why_missing()):  # fetched before there is no internet
        sys.exit(why)
    network = network_or_exit() if options.namespaces else None
    print(f"seed {options.seed}", flush=True)
    directory = options.directory or Path(tempfile.mkdtemp(prefix="klamm-campaign-"))
    sys.exit(0 if run(options, directory, network) else 1)


if __name__ == "__main__":
    main()
