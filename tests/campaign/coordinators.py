"""Exactly-once copies and a consumer group under faults: what is lost, doubled, torn, or committed in vain?

    python -m tests.campaign.coordinators --rounds 30 --seconds 180 [--seed 1] [--mixed | --kafka] [--protocols 2.8 3.9]
        [--namespaces]

Each round starts a cluster of three nodes. For SECONDS, two processes copy a topic in transactions and three consume it
as a group, while nodes are killed, stopped, paused and cut off from the network, ZooKeeper stops, and clients are
killed. Then everything has to be copied and consumed, each record once. `--mixed` has two klamm nodes and two brokers
of Apache Kafka with replicas of the same partitions: either kind leads, is controller and coordinator, after each fault
the replicas are compared, and at the end all files; `--protocols` takes turns. `--kafka` runs the same on Apache Kafka.
With `--namespaces` each node, ZooKeeper and the clients have a network namespace of their own: packets are dropped, all
or some, in both directions or one, around either kind of node. It needs root.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.campaign.network import Network, network_or_exit, place
from tests.campaign.network_faults import NetworkFaults
from tests.support import apache_kafka
from tests.support.cluster import SESSION_TIMEOUT_S, Cluster
from tests.support.coordinator_workload import CoordinatorWorkload
from tests.support.faults import HEAL_S, FaultCampaign
from tests.support.mixed_checks import Roles, check_files_of_all, print_problems
from tests.support.mixed_cluster import MixedCluster
from tests.support.replica_verification import verify_running
from tests.support.workload import Workload

from klamm.cli.admin.client import CannotAsk
from klamm.cli.admin.elections import ElectionType, elect
from klamm.embedded.nodes import NodeProcess, klamm_node

SOURCE, TARGET = "source", "copy"
PARTITIONS = 6
OVERRIDES = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "500",
}
INTERNAL = ("__consumer_offsets", "__transaction_state")
BEYOND_SESSION_S = SESSION_TIMEOUT_S + 4
SHORT_S = 2


def make_cluster(options: argparse.Namespace, directory: Path, protocol: str, network: Network | None) -> Cluster:
    """The cluster of a round, started."""
    if options.mixed:
        mixed = MixedCluster(directory, protocol, kafka=(1, 2), klamm=(100, 101), overrides=OVERRIDES)
        if network is not None:
            place(mixed, network)
        mixed.start_first(100)
        mixed.start_others()
        return mixed
    command = apache_kafka.broker() if options.kafka else klamm_node
    has_proxies = network is None and not options.kafka
    cluster = Cluster(directory, 3, command=command, overrides=OVERRIDES, network_faults=has_proxies)
    if network is not None:
        place(cluster, network)
    cluster.start()
    return cluster


class Round:
    """The faults of one round, drawn from a seed."""

    def __init__(
        self,
        cluster: Cluster,
        faults: FaultCampaign,
        clients: CoordinatorWorkload,
        seed: int,
        network: Network | None,
        *,
        has_proxies: bool,
    ) -> None:
        self._cluster, self._faults, self._clients, self._has_proxies = cluster, faults, clients, has_proxies
        self._random = random.Random(seed)
        self._network = None if network is None else NetworkFaults(network, cluster, faults, self._random)

    def choose_node(self) -> NodeProcess:
        """Mostly a node that leads a partition of a coordinator's topic."""
        if self._random.random() < 0.3:
            return self._random.choice(self._cluster.nodes)
        topic, number = self._random.choice(INTERNAL), self._random.randrange(3)
        return self._cluster.node(self._cluster.partition_state(topic, number).leader)

    def inject(self) -> str:
        """One fault; what it was and how long the cluster took to recover."""
        choices: list[tuple[int, Callable[[], object]]] = [
            (4, lambda: self._faults.kill(self.choose_node())),
            (2, lambda: self._faults.stop(self.choose_node())),
            (2, lambda: self._faults.freeze(self.choose_node(), BEYOND_SESSION_S)),
            (1, lambda: self._faults.freeze(self.choose_node(), SHORT_S)),
            (1, lambda: self._faults.stop_zookeeper(self._random.choice((3, 8)))),
            (3, lambda: f"SIGKILL of {self._clients.kill_copier()}"),
            (2, lambda: f"SIGKILL of {self._clients.kill_reader()}"),
        ]
        if isinstance(self._cluster, MixedCluster):
            choices.append((2, self._move_controller))
        if self._has_proxies:
            choices.append((3, lambda: self._faults.cut_off(self.choose_node(), BEYOND_SESSION_S)))
        if (network := self._network) is not None:
            choices.append((10, lambda: network.inject(self.choose_node())))
        [fault] = self._random.choices([c for _, c in choices], [weight for weight, _ in choices])
        return str(fault())

    def _move_controller(self) -> str:
        """Make a node of the other kind controller."""
        assert isinstance(self._cluster, MixedCluster)
        kafka_ids = set(self._cluster.kafka_ids)
        others = {n.broker_id for n in self._cluster.nodes} - kafka_ids
        self._cluster.move_controller(others if self._cluster.controller_id in kafka_ids else kafka_ids)
        return f"controller moved to node {self._cluster.controller_id}"

    def elect_preferred_leaders(self) -> None:
        """Give partitions back to those who led them before, as auto.leader.rebalance.enable does in time."""
        try:
            self._cluster.ask(lambda admin: elect(admin, ElectionType.PREFERRED, None))
        except CannotAsk as error:
            print(f"    preferred leaders were not elected: {error}", flush=True)


def compare_replicas(cluster: MixedCluster) -> bool:
    """Compare all replicas of the running cluster, and print what differs; whether nothing does."""
    verified = verify_running(cluster.bootstrap)
    print_problems(verified.problems)
    return not verified.problems


def run_round(options: argparse.Namespace, directory: Path, seed: int, protocol: str, network: Network | None) -> bool:
    """One cluster with faults for `options.seconds`; whether nothing was lost."""
    cluster = make_cluster(options, directory / "cluster", protocol, network)
    clients: CoordinatorWorkload | None = None
    try:
        for topic in (SOURCE, TARGET):
            cluster.create_topic(topic, PARTITIONS, 3, {"min.insync.replicas": "2"})
        clients = CoordinatorWorkload(directory / "clients", cluster, SOURCE, TARGET, PARTITIONS, seed)
        # with several in flight, librdkafka begins a new producer epoch where the next leader gets the later ones
        # while the first waits at a frozen one, and writes again what may be written already
        workload = Workload(cluster.bootstrap, SOURCE, PARTITIONS, options.rate, in_flight=1)
        only_klamm = not (options.kafka or options.mixed)
        heal_s = HEAL_S if only_klamm else 3 * HEAL_S  # Apache Kafka's brokers start more slowly
        faults = FaultCampaign(cluster, workload, seed=seed, restart_at_once=only_klamm, heal_s=heal_s)
        workload.start()
        clients.start()
        for topic in INTERNAL:
            cluster.wait_until_in_sync(topic, 3, 3)
        has_proxies = network is None and only_klamm
        work, count = Round(cluster, faults, clients, seed, network, has_proxies=has_proxies), 0
        ends, roles, is_equal = time.monotonic() + options.seconds, Roles((SOURCE, TARGET, *INTERNAL)), True
        while time.monotonic() < ends:
            count += 1
            print(f"  {count:3} {work.inject()}", flush=True)
            work.elect_preferred_leaders()
            if isinstance(cluster, MixedCluster):
                roles.look(cluster)
                is_equal &= compare_replicas(cluster)
        workload.stop()
        cluster.repair()
        clients.finish()
        produced, verdict = workload.check(), clients.check()
        print(f"  {count} faults; produced: {produced}; {len(workload.failures)} refused for good")
        print(f"  {verdict}; {len(clients.crashes)} clients had to be started again", flush=True)
        for what, found in verdict.anomalies.items():
            for anomaly in found[:5]:
                print(f"    {what}: {anomaly}")
        if isinstance(cluster, MixedCluster):
            files = check_files_of_all(cluster, INTERNAL)
            print(f"  {roles}\n  {files.text}", flush=True)
            print_problems(files.problems)
            is_equal &= not files.problems
        return verdict.is_clean and produced.is_clean and is_equal
    except AssertionError as error:
        print(f"  not healed: {error}", flush=True)
        return False
    finally:
        if clients is not None:
            clients.close()
            for crash in clients.crashes:
                print(f"    {crash}")
        cluster.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=180, help="how long each round has faults")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rate", type=int, default=150, help="records per second")
    parser.add_argument("--mixed", action="store_true", help="klamm's nodes and Apache Kafka's in one cluster")
    parser.add_argument("--protocols", nargs="+", default=["3.9"], help="inter.broker.protocol.version, with --mixed")
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka's brokers instead of klamm's")
    parser.add_argument("--namespaces", action="store_true", help="a network namespace for each node; needs root")
    options = parser.parse_args()
    if (options.kafka or options.mixed) and (why := apache_kafka.why_missing()):  # fetched before there is no internet
        sys.exit(why)
    network = network_or_exit() if options.namespaces else None
    failed = []
    for number in range(options.rounds):
        seed = options.seed + number
        directory = Path(tempfile.mkdtemp(prefix="klamm-campaign-"))
        protocol = options.protocols[number % len(options.protocols)]
        print(f"round {number + 1} of {options.rounds}, seed {seed}, protocol {protocol}", flush=True)
        if run_round(options, directory, seed, protocol, network):
            shutil.rmtree(directory, ignore_errors=True)
        else:
            failed.append(seed)
            print(f"  kept: {directory}", flush=True)
    print(f"{options.rounds - len(failed)} of {options.rounds} rounds without an anomaly; failed seeds: {failed}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
