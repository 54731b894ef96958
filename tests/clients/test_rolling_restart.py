"""`klamm rolling-restart` on real nodes: nothing is lost while it restarts them, and it stops at the first doubt."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.cluster import Cluster

from klamm.embedded.nodes import Command
from klamm.runtime.processes import python, run, ticks

RECORDS_PER_TICK = 20


@pytest.fixture(scope="module")
def own(node_command: Command, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that the tests of this file restart."""
    with Cluster(directory=tmp_path_factory.mktemp("rolling"), command=node_command) as running:
        running.create_topic("orders", 3, 3, {"min.insync.replicas": "2"})
        yield running


def rolling_restart(cluster: Cluster, command: str, *options: str) -> tuple[int, str]:
    words = ["rolling-restart", "--bootstrap-server", cluster.bootstrap, "--command", command, *options]
    return run([python(), "-m", "klamm", *words], 120)


class Supervisor:
    """Restarts a node when a file with its id appears, after the command that made the file has ended."""

    def __init__(self, cluster: Cluster, requests: Path) -> None:
        self.cluster, self.requests = cluster, requests
        self.restarted: list[int] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "Supervisor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _serve(self) -> None:
        for _ in ticks(120, 0.05):
            if self._is_over.is_set():
                return
            for request in self.requests.iterdir():
                request.unlink()
                node = self.cluster.node(int(request.name))
                node.stop()
                node.start()
                self.restarted.append(node.broker_id)


class Writer:
    """Writes records with acks=all until the end of the block; `failed` has those that were not acknowledged."""

    def __init__(self, cluster: Cluster) -> None:
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0}
        )
        self.written = 0
        self.failed: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(60) == 0

    def _write(self) -> None:
        while not self._is_over.is_set():
            for _ in range(RECORDS_PER_TICK):
                self._producer.produce("orders", str(self.written), on_delivery=self._on_delivery)
                self.written += 1
            self._producer.poll(0.01)

    def _on_delivery(self, error: object, _: object) -> None:
        if error is not None:
            self.failed.append(str(error))


def test_a_rolling_restart_of_all_nodes_loses_no_record_of_a_producer(own: Cluster, tmp_path: Path) -> None:
    controller = int(own.metadata().controller_id)
    with Supervisor(own, tmp_path) as supervisor, Writer(own) as writer:
        status, said = rolling_restart(own, f"touch {tmp_path}/{{id}}")

    assert status == 0, said
    assert supervisor.restarted == [*sorted({1, 2, 3} - {controller}), controller]
    assert "All 3 brokers were restarted, and all partitions are in sync." in said
    assert writer.failed == []
    assert writer.written > 0
    assert sum(end - begin for begin, end in own.offsets("orders").values()) == writer.written


def test_a_rolling_restart_stops_at_the_first_broker_that_its_command_does_not_restart(own: Cluster) -> None:
    status, said = rolling_restart(own, "true", "--brokers", "1,2", "--timeout", "1")

    assert status == 1
    assert re.search(r"Broker [12] did not restart within 1 s", said)
    assert "not restarted or in doubt: 1, 2" in said or "not restarted or in doubt: 2, 1" in said


def test_a_rolling_restart_reports_the_last_output_line_of_a_failed_restart_command(own: Cluster) -> None:
    status, said = rolling_restart(own, "sh -c 'echo no such unit; exit 5'", "--brokers", "2")

    assert status == 1
    assert "The command for broker 2 ended with status 5: no such unit" in said


def test_a_rolling_restart_stops_before_a_broker_whose_restart_leaves_a_partition_leaderless(
    own: Cluster, tmp_path: Path
) -> None:
    own.create_topic("alone", 3, 1)

    status, said = rolling_restart(own, f"touch {tmp_path}/{{id}}", "--brokers", "3")

    assert status == 1
    assert "Broker 3 is not restarted, because alone-" in said
    assert "would have no leader: it is the only replica" in said
    assert not list(tmp_path.iterdir())
    own.delete_topic("alone")


def test_a_rolling_restart_does_not_begin_while_a_broker_is_down(own: Cluster, tmp_path: Path) -> None:
    own.node(3).stop()

    status, said = rolling_restart(own, f"touch {tmp_path}/{{id}}", "--brokers", "1")

    assert status == 1
    assert "Broker 1 is not restarted, because not in sync: orders-" in said
    assert not list(tmp_path.iterdir())
    own.node(3).start()
    own.wait_until_complete()
    own.wait_until_in_sync("orders", 3, 3)
