"""Kafka Connect 3.9.1 on klamm's brokers: file source and file sink, standalone and with three distributed workers."""

import json
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.clients.test_transactions import consumed
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.foreign_clients import ClientProcess

from klamm.embedded.nodes import Command
from klamm.runtime.ports import free_ports

LINES = 100
START_TIMEOUT_S = 120
SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
STRING = "org.apache.kafka.connect.storage.StringConverter"


@pytest.fixture(scope="module")
def cluster(node_command: Command, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    for jars in (apache_kafka.KAFKA, apache_kafka.CONNECT_FILE):
        if why := apache_kafka.why_missing(jars):
            pytest.skip(why)
    overrides = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}
    with Cluster(tmp_path_factory.mktemp("connect"), command=node_command, overrides=overrides) as running:
        yield running


def write_properties(path: Path, properties: Mapping[str, object]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return str(path)


def connect(main: str, *arguments: str) -> list[str]:
    classpath = (apache_kafka.KAFKA.directory, apache_kafka.CONNECT_FILE.directory)
    return apache_kafka.java(f"org.apache.kafka.connect.cli.{main}", *arguments, classpath=classpath)


def worker_properties(cluster: Cluster, port: int) -> dict[str, object]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "key.converter": STRING,
        "value.converter": STRING,
        "offset.flush.interval.ms": 500,
        "listeners": f"HTTP://127.0.0.1:{port}",
        "plugin.discovery": "hybrid_warn",
    }


def write_lines(path: Path, first: int) -> list[str]:
    lines = [f"line {number}" for number in range(first, first + LINES)]
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
    return lines


def wait_for_lines(cluster: Cluster, path: Path, lines: list[str], process: ClientProcess) -> None:
    """Wait until the file has these lines; a sink that was killed may repeat some of them."""

    def all_are_there() -> bool:
        assert process.exit_status is None, process.errors
        return path.exists() and list(dict.fromkeys(path.read_text().splitlines())) == lines

    try:
        cluster.wait_until(f"{path} has {len(lines)} lines", all_are_there)
    except AssertionError as error:
        found = path.read_text().splitlines() if path.exists() else None
        raise AssertionError(f"{error}\n{len(found or [])} lines\n{process.errors}") from None


def test_standalone_kafka_connect_worker_copies_a_growing_file(cluster: Cluster, tmp_path: Path) -> None:
    source, sink, topic = tmp_path / "source.txt", tmp_path / "sink.txt", "standalone"
    cluster.create_topic(topic, 1, 3)
    [port] = free_ports(1)
    worker = {**worker_properties(cluster, port), "offset.storage.file.filename": tmp_path / "offsets"}
    words = connect(
        "ConnectStandalone",
        write_properties(tmp_path / "worker.properties", worker),
        write_properties(
            tmp_path / "source.properties",
            {"name": "source", "connector.class": SOURCE, "file": source, "topic": topic, "tasks.max": 1},
        ),
        write_properties(
            tmp_path / "sink.properties",
            {"name": "sink", "connector.class": SINK, "file": sink, "topics": topic, "tasks.max": 1},
        ),
    )
    lines = write_lines(source, 0)
    process = ClientProcess(tmp_path, "standalone", words)
    try:
        wait_for_lines(cluster, sink, lines, process)
        cluster.group("connect-sink").wait_until_caught_up(topic)
        lines += write_lines(source, LINES)
        wait_for_lines(cluster, sink, lines, process)
    finally:
        process.kill()
    assert cluster.offsets(topic) == {0: (0, 2 * LINES)}


class Workers:
    """Distributed workers, each with its REST interface on a port of its own."""

    def __init__(self, cluster: Cluster, directory: Path, count: int) -> None:
        self._cluster = cluster
        self._directory = directory
        self.ports = free_ports(count)
        self.processes = {port: self.start(port) for port in self.ports}

    def start(self, port: int) -> ClientProcess:
        properties = {
            **worker_properties(self._cluster, port),
            "group.id": "connect-cluster",
            "config.storage.topic": "connect-configs",
            "offset.storage.topic": "connect-offsets",
            "status.storage.topic": "connect-status",
            "offset.storage.partitions": 3,
            "status.storage.partitions": 3,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 1_000,
            "scheduled.rebalance.max.delay.ms": 1_000,
            "exactly.once.source.support": "enabled",
        }
        path = write_properties(self._directory / f"worker-{port}.properties", properties)
        return ClientProcess(self._directory, f"worker-{port}", connect("ConnectDistributed", path))

    def request(self, port: int, path: str, content: Mapping[str, Any] | None = None) -> Any:
        """GET, or PUT of the content."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}",
            None if content is None else json.dumps(content).encode(),
            {"Content-Type": "application/json"},
            method="GET" if content is None else "PUT",
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.loads(answer.read())

    def wait_until_it_answers(self, port: int) -> None:
        def answers() -> bool:
            try:
                return bool(self.request(port, "/")["kafka_cluster_id"])
            except OSError:
                return False

        self._cluster.wait_until(f"worker {port} answers", answers, START_TIMEOUT_S)

    def put(self, name: str, config: Mapping[str, Any]) -> None:
        """Create a connector; a worker refuses it while a rebalance runs."""

        def is_accepted() -> bool:
            try:
                return bool(self.request(self.ports[0], f"/connectors/{name}/config", config))
            except OSError:
                return False

        self._cluster.wait_until(f"connector {name} is accepted", is_accepted)

    def worker_of(self, connector: str, asked: int) -> int:
        """The port of the worker that runs the connector's task, as the worker at the port `asked` knows it."""
        found: list[int] = []

        def runs() -> bool:
            try:
                tasks = self.request(asked, f"/connectors/{connector}/status")["tasks"]
            except OSError:
                return False
            found.extend(int(t["worker_id"].rpartition(":")[2]) for t in tasks if t["state"] == "RUNNING")
            return bool(found)

        self._cluster.wait_until(f"the task of {connector} runs", runs)
        return found[0]

    def kill(self) -> None:
        for process in self.processes.values():
            process.kill()


def test_kafka_connect_workers_take_over_the_tasks_of_a_killed_worker(
    cluster: Cluster, tmp_path: Path, client_rounds: int
) -> None:
    if client_rounds == 1:
        pytest.skip("three workers take a minute: `make prove` runs them")
    source, sink, topic = tmp_path / "source.txt", tmp_path / "sink.txt", "distributed"
    cluster.create_topic(topic, 1, 3)
    lines = write_lines(source, 0)
    workers = Workers(cluster, tmp_path, 3)
    try:
        for port in workers.ports:
            workers.wait_until_it_answers(port)
        workers.put("source", {"connector.class": SOURCE, "file": str(source), "topic": topic, "tasks.max": 1})
        workers.put("sink", {"connector.class": SINK, "file": str(sink), "topics": topic, "tasks.max": 1})
        wait_for_lines(cluster, sink, lines, workers.processes[workers.ports[0]])
        for number in range(1, client_rounds):
            port = workers.worker_of("source", asked=workers.ports[number % 3])
            workers.processes[port].kill()
            lines += write_lines(source, number * LINES)
            survivor = next(p for p in workers.ports if p != port)
            wait_for_lines(cluster, sink, lines, workers.processes[survivor])
            workers.processes[port] = workers.start(port)
            workers.wait_until_it_answers(port)
        assert consumed(cluster, topic, len(lines), partitions=1) == sorted(lines)  # the source is exactly-once
    finally:
        workers.kill()
