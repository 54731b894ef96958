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
from tests.support.mixed_cluster import KAFKA, KLAMM, MixedCluster
from tests.support.mixed_verbs import THREE, HalfDone, Operator
from tests.support.mixed_world import operated
from tests.support.workload import NOTICE_GAP_S, Workload

OURS: Final = {0: (2, 3, 1), 1: (3, 1, 2), 2: (1, 2, 3)}


class Table:
    """Prints a line for each verb; remembers whether all brokers were content."""

    def __init__(self, cluster: MixedCluster, load: Workload, protocol: str) -> None:
        self.is_clean = True
        self._cluster = cluster
        self._load = load
        self._protocol = protocol
        self._known = {node.broker_id: 0 for node in cluster.nodes}

    def play(self, what: str, verb: Callable[[], object], *, may_complain: bool = False) -> None:
        """`verb` may say more of what happened."""
        began = time.monotonic()
        more = verb()
        took, gap = time.monotonic() - began, self._load.longest_gap_s(began)
        complaints = self._new_complaints()
        self.is_clean &= may_complain or not complaints
        figures = f"{took:5.1f} s  gap {_told(gap):8} {len(complaints)} complaints"
        print(f"{self._protocol:4} {what:62} {figures}  {more or ''}", flush=True)
        for broker_id, text in complaints[: 0 if may_complain else 5]:
            print(f"       broker {broker_id}: {text[:300]}", flush=True)

    def judge(self) -> None:
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


class Verbs:
    """One method for each line of the table."""

    def __init__(self, operator: Operator) -> None:
        self._o = operator
        self._cluster = operator.cluster

    def topics(self) -> None:
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

    def killed(self) -> str:
        """The one that leads most."""
        self._cluster.kill_node(1)
        topic = self._o.load.topic
        self._cluster.wait_until("others lead", lambda: not {1, -1} & set(self._cluster.leaders(topic).values()))
        self._cluster.start_node(1)
        self._o.load_is_right()
        return "others led meanwhile"

    def shut_down(self) -> str:
        self._cluster.stop_node(2)
        said = Path(self._cluster.node(2).output_path).read_text().splitlines()
        self._cluster.start_node(2)
        self._o.load_is_right()
        return next(line for line in reversed(said) if "Controlled shutdown request" in line).split("] ", 1)[-1]

    def preferred(self) -> None:
        self._o.elect_preferred(self._o.load.topic, THREE)

    def unclean(self) -> None:
        self._cluster.create("careless", {0: (2, 3)}, {"min.insync.replicas": "1"})
        self._o.lose_the_last_in_sync("careless", 2, 3)
        self._o.elect_unclean("careless", 3)
        self._cluster.start_node(2)
        self._cluster.wait_until_right("careless", {0: (2, 3)})

    def unclean_allowed(self) -> None:
        self._o.lose_the_last_in_sync("careless", 3, 2)
        self._o.allow_unclean("careless", 2)
        self._cluster.start_node(3)
        self._cluster.wait_until_right("careless", {0: (2, 3)})
        self._o.delete("careless")

    def directory_fails(self) -> str:
        """Of broker 3's two: a directory where its checkpoints are to be written fails it."""
        cluster, topic = self._cluster, self._o.load.topic
        failing = Path(cluster.node(3).properties["log.dirs"].split(",")[1])
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

    def hand_back(self, number: int) -> str:
        """Stopped in order, killed, or frozen until its session is over: it wakes as a zombie."""
        cluster, node = self._cluster, self._cluster.node(KLAMM)
        work = HalfDone(self._o, f"back-{number}")
        work.begin()
        epoch, began = cluster.controller_epoch, time.monotonic()
        end = (lambda: cluster.stop_node(KLAMM), node.kill, node.pause)[number % 3]
        end()
        cluster.wait_until("Apache Kafka is controller", lambda: cluster.controller_id in KAFKA, SESSION_TIMEOUT_S + 20)
        took = time.monotonic() - began
        node.resume()
        holder = cluster.wait_for_controller(KAFKA)
        work.is_half_done()
        assert cluster.controller_epoch == epoch + 1
        how = ("stopped", "killed", "frozen")[number % 3]
        return f"node {KLAMM} {how}: {holder} active after {took:.2f} s" + self._finish(work, began)

    def take_over(self, number: int) -> str:
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
        return f"node {KLAMM} active after {took:.2f} s, {tries} elections" + self._finish(work, began)

    def _finish(self, work: HalfDone, moved: float) -> str:
        """`moved` is when the controller's term was ended: broker 3 was gone by then."""
        gap = _told(self._o.load.longest_gap_s(moved))
        began = time.monotonic()
        work.end()
        self._o.load_is_right()
        return f", gap meanwhile {gap}; the rest done in {time.monotonic() - began:.0f} s"


def _told(gap_s: float) -> str:
    return f"{gap_s:.2f} s" if gap_s >= NOTICE_GAP_S else f"< {NOTICE_GAP_S} s"


def ours_over_theirs(directory: Path, protocol: str, rounds: int) -> bool:
    with operated(directory, protocol, second_directory=3) as operator:
        table, verbs = Table(operator.cluster, operator.load, protocol), Verbs(operator)
        table.play("topics: created, moved, a move cancelled, grown, deleted", verbs.topics)
        table.play("broker 1 killed, and back", verbs.killed)
        table.play("broker 2 shut down in order, and back", verbs.shut_down)
        table.play("preferred leaders elected", verbs.preferred)
        table.play("unclean election by tool", verbs.unclean)
        table.play("unclean election by a topic's config", verbs.unclean_allowed)
        for number in range(rounds):
            table.play("handed back to Apache Kafka amid work", lambda n=number: verbs.hand_back(n))  # type: ignore[misc]
            table.play("taken over from Apache Kafka amid work", lambda n=number: verbs.take_over(n))  # type: ignore[misc]
        table.play("one of broker 3's log directories fails", verbs.directory_fails, may_complain=True)
        table.judge()
        return table.is_clean


def ours_under_theirs(directory: Path, protocol: str) -> bool:
    """Apache Kafka's broker 1 is controller, 2 and 3 are klamm's."""
    cluster = MixedCluster(directory, protocol, kafka=(1,), klamm=(2, 3))
    try:
        cluster.start_first(1)
        cluster.start_others()
        cluster.create("load", OURS, {"min.insync.replicas": "2"})
        load = Workload(cluster.bootstrap, "load", len(OURS), 200)
        load.start()
        table = Table(cluster, load, protocol)

        def back(broker_id: int, end: Callable[[int], None]) -> None:
            end(broker_id)
            cluster.start_node(broker_id)
            cluster.wait_until_right("load", OURS)

        with kafka_tools(directory / "tools.log") as tools:
            verbs = Operator(cluster, tools, load, directory)
            table.play("klamm's broker 2 killed under Apache Kafka's controller", lambda: back(2, cluster.kill_node))
            table.play("klamm's broker 3 shut down in order under it", lambda: back(3, cluster.stop_node))
            table.play("preferred leaders elected by it", lambda: verbs.elect_preferred("load", OURS))
            cluster.create("brief", {0: (2, 1), 1: (1, 3)})
            table.play("a topic deleted by it", lambda: verbs.delete("brief"))
            assert cluster.controller_id == 1
            table.judge()
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
        clean &= ours_over_theirs(directory / protocol, protocol, options.rounds)
        clean &= ours_under_theirs(directory / f"{protocol}-under", protocol)
    print("nothing lost, nothing to complain of" if clean else f"kept: {directory}", flush=True)
    sys.exit(0 if clean else 1)


if __name__ == "__main__":
    main()
