"""klamm's controller over Apache Kafka's brokers, at length: every verb, then controllership handed over and back.

    python -m tests.campaign.mixed --rounds 3 --protocols 2.8 3.9

At each protocol version: all that an operator does, with a producer that never stops (acks=all, idempotent); then the
controller moves from one kind to the other and back, `--rounds` times, each time with reassignments and a
deletion half done; then klamm's brokers under Apache Kafka's controller. A line tells each verb, how long it took, the
longest stretch without an acknowledgement and what the brokers complained of; nothing may be lost.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.cluster import SESSION_TIMEOUT_S
from tests.support.kafka_tools import kafka_tools
from tests.support.mixed_cluster import KAFKA, KLAMM, MixedCluster, log_dirs_of
from tests.support.mixed_verbs import THREE, HalfDone, Operator
from tests.support.mixed_world import operated
from tests.support.workload import NOTICE_GAP_S, Workload

OURS: Final = {0: (2, 3, 1), 1: (3, 1, 2), 2: (1, 2, 3)}


class ResultTable:
    """Prints a line for each step; remembers whether all brokers worked without errors."""

    def __init__(self, cluster: MixedCluster, load: Workload, protocol: str) -> None:
        self.is_clean = True
        self._cluster = cluster
        self._load = load
        self._protocol = protocol
        self._known = {node.broker_id: 0 for node in cluster.nodes}

    def run_step(self, what: str, verb: Callable[[], object], *, may_complain: bool = False) -> None:
        """Run a step and print its line; `verb` may return a text for the line."""
        began = time.monotonic()
        more = verb()
        took, gap = time.monotonic() - began, self._load.longest_gap_s(began)
        complaints = self._new_complaints()
        self.is_clean &= may_complain or not complaints
        figures = f"{took:5.1f} s  gap {_gap_text(gap):8} {len(complaints)} complaints"
        print(f"{self._protocol:4} {what:62} {figures}  {more or ''}", flush=True)
        for broker_id, text in complaints[: 0 if may_complain else 5]:
            print(f"       broker {broker_id}: {text[:300]}", flush=True)

    def check_load(self) -> None:
        """Stop the load, and read everything back."""
        self._load.stop()
        verdict = self._load.check()
        print(f"{self._protocol:4} {verdict}; {len(self._load.failures)} refused for good", flush=True)
        self.is_clean &= verdict.is_clean and not self._load.failures and verdict.acknowledged > 0

    def _new_complaints(self) -> list[tuple[int, str]]:
        found = []
        for broker_id, known in self._known.items():
            kafka = broker_id in self._cluster.kafka_ids
            said = self._cluster.complaints(broker_id) if kafka else self._cluster.warnings(broker_id)
            found += [(broker_id, text) for text in said[known:]]
            self._known[broker_id] = len(said)
        return found


class Steps:
    """One method for each line of the table."""

    def __init__(self, operator: Operator) -> None:
        self._o = operator
        self._cluster = operator.cluster

    def run_topics(self) -> None:
        o, began, moved = self._o, {0: (1, 2), 1: (2, 3)}, {0: (3, 1), 1: (1, 2)}
        o.create("orders", began, "retention.ms=3600000")
        o.produce("orders", began)
        o.start_moving("orders", moved)
        o.wait_until_moved("orders", moved)
        o.start_moving("orders", {0: (2, 3)}, "1")
        o.cancel("orders", {0: (2, 3)})
        self._cluster.wait_until_right("orders", moved)
        o.grow("orders", {**moved, 2: (2, 3)})
        o.produce("orders", [0, 1, 2], 10)
        o.delete("orders")

    def kill_largest_leader(self) -> str:
        """Kill the broker that leads most partitions."""
        self._cluster.kill_node(1)
        topic = self._o.load.topic
        self._cluster.wait_until("others lead", lambda: not {1, -1} & set(self._cluster.leaders(topic).values()))
        self._cluster.start_node(1)
        self._o.load_is_right()
        return "others led meanwhile"

    def shut_down_broker(self) -> str:
        self._cluster.stop_node(2)
        said = Path(self._cluster.node(2).output_path).read_text().splitlines()
        self._cluster.start_node(2)
        self._o.load_is_right()
        return next(line for line in reversed(said) if "Controlled shutdown request" in line).split("] ", 1)[-1]

    def elect_preferred_leaders(self) -> None:
        self._o.elect_preferred(self._o.load.topic, THREE)

    def elect_unclean_leader(self) -> None:
        self._cluster.create("careless", {0: (2, 3)}, {"min.insync.replicas": "1"})
        self._o.lose_the_last_in_sync("careless", 2, 3)
        self._o.elect_unclean("careless", 3)
        self._cluster.start_node(2)
        self._cluster.wait_until_right("careless", {0: (2, 3)})

    def allow_unclean_elections(self) -> None:
        self._o.lose_the_last_in_sync("careless", 3, 2)
        self._o.allow_unclean("careless", 2)
        self._cluster.start_node(3)
        self._cluster.wait_until_right("careless", {0: (2, 3)})
        self._o.delete("careless")

    def fail_log_directory(self) -> str:
        """Fail one of broker 3's two directories: a directory replaces its checkpoint file."""
        cluster, topic = self._cluster, self._o.load.topic
        failing = Path(log_dirs_of(cluster.node(3))[1])
        lost = [int(p.name.rpartition("-")[2]) for p in cluster.partition_paths(cluster.node(3), topic)
                if p.parent == failing]  # fmt: skip
        assert lost, "nothing lies there"
        checkpoint = failing / "replication-offset-checkpoint"
        checkpoint.rename(failing / "checkpoint-set-aside")
        (checkpoint / "obstacle").mkdir(parents=True)  # an empty directory could be replaced by the file
        cluster.wait_until(
            "what lay there is out of sync", lambda: all(3 not in cluster.state(topic, p)["isr"] for p in lost)
        )
        leaders = cluster.leaders(topic)
        assert not {3, -1} & {leaders[p] for p in lost}
        cluster.stop_node(3)
        (checkpoint / "obstacle").rmdir()
        checkpoint.rmdir()
        (failing / "checkpoint-set-aside").rename(checkpoint)
        cluster.start_node(3)
        self._o.load_is_right()
        return f"partitions {lost} were led by others"

    # ---- the controller

    def hand_over_to_kafka(self, number: int) -> str:
        """Stop klamm's node in order, kill it, or pause it until its session expires: it wakes as a zombie."""
        cluster, node = self._cluster, self._cluster.node(KLAMM)
        work = HalfDone(self._o, f"back-{number}")
        work.begin()
        epoch, began = cluster.controller_epoch, time.monotonic()
        ways: list[Callable[[], object]] = [lambda: cluster.stop_node(KLAMM), node.kill, node.pause]
        ways[number % 3]()
        cluster.wait_until("Apache Kafka is controller", lambda: cluster.controller_id in KAFKA, SESSION_TIMEOUT_S + 20)
        took = time.monotonic() - began
        node.resume()
        holder = cluster.wait_for_controller(KAFKA)
        work.is_half_done()
        assert cluster.controller_epoch == epoch + 1
        how = ("stopped", "killed", "frozen")[number % 3]
        return f"node {KLAMM} {how}: {holder} active after {took:.2f} s" + self._finish_half_done_work(work, began)

    def hand_over_to_klamm(self, number: int) -> str:
        cluster = self._cluster
        if not cluster.node(KLAMM).is_running:
            cluster.start_node(KLAMM)
        cluster.wait_until_complete()
        work = HalfDone(self._o, f"over-{number}")
        work.begin()
        began = time.monotonic()
        tries = cluster.move_controller({KLAMM})
        took = time.monotonic() - began
        work.is_half_done()
        return f"node {KLAMM} active after {took:.2f} s, {tries} elections" + self._finish_half_done_work(work, began)

    def _finish_half_done_work(self, work: HalfDone, moved: float) -> str:
        """`moved` is when the controller's term ended: broker 3 was dead by then."""
        gap = _gap_text(self._o.load.longest_gap_s(moved))
        began = time.monotonic()
        work.end()
        self._o.load_is_right()
        return f", gap meanwhile {gap}; the rest done in {time.monotonic() - began:.0f} s"


def _gap_text(gap_s: float) -> str:
    return f"{gap_s:.2f} s" if gap_s >= NOTICE_GAP_S else f"< {NOTICE_GAP_S} s"


def klamm_controls_kafka(directory: Path, protocol: str, rounds: int) -> bool:
    with operated(directory, protocol, second_directory=3) as operator:
        table, verbs = ResultTable(operator.cluster, operator.load, protocol), Steps(operator)
        table.run_step("topics: created, moved, a move cancelled, grown, deleted", verbs.run_topics)
        table.run_step("broker 1 killed, and back", verbs.kill_largest_leader)
        table.run_step("broker 2 shut down in order, and back", verbs.shut_down_broker)
        table.run_step("preferred leaders elected", verbs.elect_preferred_leaders)
        table.run_step("unclean election by tool", verbs.elect_unclean_leader)
        table.run_step("unclean election by a topic's config", verbs.allow_unclean_elections)
        for number in range(rounds):
            table.run_step("handed back to Apache Kafka amid work", lambda n=number: verbs.hand_over_to_kafka(n))  # type: ignore[misc]
            table.run_step("taken over from Apache Kafka amid work", lambda n=number: verbs.hand_over_to_klamm(n))  # type: ignore[misc]
        table.run_step("one of broker 3's log directories fails", verbs.fail_log_directory, may_complain=True)
        table.check_load()
        return table.is_clean


def kafka_controls_klamm(directory: Path, protocol: str) -> bool:
    """Apache Kafka's broker 1 is controller, 2 and 3 are klamm's."""
    cluster = MixedCluster(directory, protocol, kafka=(1,), klamm=(2, 3))
    try:
        cluster.start_first(1)
        cluster.start_others()
        cluster.create("load", OURS, {"min.insync.replicas": "2"})
        load = Workload(cluster.bootstrap, "load", len(OURS), 200)
        load.start()
        table = ResultTable(cluster, load, protocol)

        def back(broker_id: int, end: Callable[[int], None]) -> None:
            end(broker_id)
            cluster.start_node(broker_id)
            cluster.wait_until_right("load", OURS)

        verbs = Operator(cluster, kafka_tools(), load, directory)
        table.run_step("klamm's broker 2 killed under Apache Kafka's controller", lambda: back(2, cluster.kill_node))
        table.run_step("klamm's broker 3 shut down in order under it", lambda: back(3, cluster.stop_node))
        table.run_step("preferred leaders elected by it", lambda: verbs.elect_preferred("load", OURS))
        cluster.create("brief", {0: (2, 1), 1: (1, 3)})
        table.run_step("a topic deleted by it", lambda: verbs.delete("brief"))
        assert cluster.controller_id == 1
        table.check_load()
        return table.is_clean
    finally:
        cluster.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="hand-backs and take-overs")
    parser.add_argument("--protocols", nargs="+", default=["2.8", "3.9"], help="inter.broker.protocol.version")
    parser.add_argument("--directory", type=Path, help="keep everything there")
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="klamm-mixed-"))
    clean = True
    for protocol in options.protocols:
        clean &= klamm_controls_kafka(directory / protocol, protocol, options.rounds)
        clean &= kafka_controls_klamm(directory / f"{protocol}-under", protocol)
    print("nothing lost, nothing to complain of" if clean else f"kept: {directory}", flush=True)
    sys.exit(0 if clean else 1)


if __name__ == "__main__":
    main()
