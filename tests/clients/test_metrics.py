"""Metrics over HTTP, after a real failover."""

import http.client
import socket
from pathlib import Path

from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families
from tests.support.cluster import Cluster

from klamm.broker.metrics_endpoint import MAX_REQUEST_BYTES
from klamm.runtime.ports import free_ports

CONTROLLER = "kafka_controller_kafkacontroller_"


def ask(port: int, method: str = "GET", path: str = "/metrics") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def metrics(port: int) -> dict[str, float]:
    """Samples without labels, by name."""
    status, page = ask(port)
    assert status == 200
    return {s.name: s.value for f in text_string_to_metric_families(page) for s in f.samples if not s.labels}


def cluster_with_metrics(directory: Path) -> tuple[Cluster, dict[int, int]]:
    """Return two nodes that are not started, and the port of each node's metrics by broker id."""
    ports = dict(zip((1, 2), free_ports(2), strict=True))
    cluster = Cluster(directory, 2)
    for node in cluster.nodes:
        node.properties["klamm.metrics.port"] = str(ports[node.broker_id])
    return cluster, ports


def test_the_broker_state_metric_is_6_during_controlled_shutdown(tmp_path: Path) -> None:
    cluster, ports = cluster_with_metrics(tmp_path)
    try:
        cluster.start()
        controller = cluster.controller_id
        cluster.node(controller).pause()
        cluster.node(3 - controller).terminate()
        cluster.wait_until(
            "it hands its leaders over",
            lambda: metrics(ports[3 - controller])["kafka_server_kafkaserver_brokerstate"] == 6,
        )
    finally:
        cluster.kill()


def test_controller_metrics_show_a_controller_failover(tmp_path: Path) -> None:
    cluster, ports = cluster_with_metrics(tmp_path)
    try:
        cluster.start()
        cluster.create_topic("orders", 4, 2)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for number in range(100):
            producer.produce("orders", b"x" * 100, str(number))
        producer.flush(20)
        controller = cluster.controller_id
        other = 3 - controller
        before = {b: metrics(port) for b, port in ports.items()}

        assert [before[b][f"{CONTROLLER}activecontrollercount"] for b in (controller, other)] == [1, 0]
        assert before[controller][f"{CONTROLLER}globalpartitioncount"] == 4
        assert sum(m["kafka_server_brokertopicmetrics_messagesin_total"] for m in before.values()) == 100
        assert sum(m["kafka_server_replicamanager_leadercount"] for m in before.values()) == 4
        assert all(m["kafka_server_replicamanager_partitioncount"] == 4 for m in before.values())

        assert {m["kafka_server_kafkaserver_brokerstate"] for m in before.values()} == {3}
        assert {m["kafka_server_replicamanager_reassigningpartitions"] for m in before.values()} == {0}
        assert {m["kafka_server_replicamanager_failedisrupdates_total"] for m in before.values()} == {0}

        cluster.node(controller).kill()
        cluster.wait_until(
            "the other is controller and has elected",
            lambda: metrics(ports[other])["kafka_server_replicamanager_leadercount"] == 4,
        )

        after = metrics(ports[other])
        assert after[f"{CONTROLLER}activecontrollercount"] == 1
        assert after[f"{CONTROLLER}activebrokercount"] == 1
        assert after[f"{CONTROLLER}offlinepartitionscount"] == 0
        assert after[f"{CONTROLLER}preferredreplicaimbalancecount"] == 2
        assert after["kafka_server_replicamanager_underreplicatedpartitions"] == 4
        assert after["kafka_controller_controllerstats_controllerchangerateandtimems_count"] >= 1
        assert after["kafka_server_sessionexpirelistener_zookeeperconnected"] == 1
        assert after["kafka_server_sessionexpirelistener_zookeeperexpires_total"] == 0
        assert after[f"{CONTROLLER}zkmigrationstate"] == 4
        assert after["kafka_log_logmanager_offlinelogdirectorycount"] == 0
        journal = {name: value for name, value in after.items() if name.startswith("klamm_journal_")}
        assert set(journal.values()) == {0}
        assert len(journal) == 3
        assert after["kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms_count"] > 10

        assert ask(ports[other], "POST")[0] == 405
        assert ask(ports[other], path="/nothing")[0] == 404
        assert ask(ports[other], "HEAD") == (200, "")
        with socket.create_connection(("127.0.0.1", ports[other]), timeout=10) as endless:
            endless.sendall(b"GET /metrics HTTP/1.1\r\n" + b"x" * MAX_REQUEST_BYTES)
            assert b"431" in endless.recv(100)
    finally:
        cluster.kill()
