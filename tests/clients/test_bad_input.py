"""What goes wrong is said in one sentence that names cause, place and remedy, and the exit status is not 0."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.cluster import Cluster

from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.runtime.ports import free_port

TIMEOUT_S = 60


def run_klamm(*words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "klamm", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, **(environment or {})},
    )


def properties(directory: Path, **changed: str) -> str:
    """A server.properties in that directory; `a__b` stands for the key `a.b`."""
    lines = {
        "broker.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
        "zookeeper.connect": "127.0.0.1:1",
        "zookeeper.connection.timeout.ms": "1500",
        "log.dirs": str(directory / "logs"),
        **{key.replace("__", "."): value for key, value in changed.items()},
    }
    path = directory / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return str(path)


def assert_one_sentence(done: subprocess.CompletedProcess[str], *words: str) -> None:
    complaint = done.stderr.strip()
    assert done.returncode not in (0, None), done.stdout
    assert "Traceback" not in done.stdout + complaint, done.stdout + complaint
    for word in words:
        assert word in complaint, f"{word!r} is not in: {complaint}"
    assert len(complaint.splitlines()) == 1, complaint


def test_an_invalid_config_value_stops_the_start_with_an_error_naming_file_line_and_key(tmp_path: Path) -> None:
    path = properties(tmp_path, log__segment__bytes="much")

    assert_one_sentence(run_klamm("node", path), path, "line 6", "log.segment.bytes=much")


def test_the_error_for_a_missing_config_file_names_the_file(tmp_path: Path) -> None:
    assert_one_sentence(run_klamm("node", str(tmp_path / "none.properties")), "none.properties")


def test_a_command_line_override_that_is_not_key_equals_value_is_refused(tmp_path: Path) -> None:
    done = run_klamm("node", properties(tmp_path), "--override", "broker.id")

    assert_one_sentence(done, "--override 'broker.id'", "KEY=VALUE")


def test_a_node_start_without_a_reachable_zookeeper_fails_with_its_address(tmp_path: Path) -> None:
    nowhere = f"127.0.0.1:{free_port()}"

    assert_one_sentence(run_klamm("node", properties(tmp_path, zookeeper__connect=nowhere)), nowhere)
    assert_one_sentence(run_klamm("up", "--data", str(tmp_path), "--zookeeper", nowhere), nowhere, "--zookeeper")


def test_a_node_start_on_a_port_in_use_fails_with_the_port_number(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path = properties(
            tmp_path, zookeeper__connect=zookeeper.connect_string, listeners=f"PLAINTEXT://127.0.0.1:{port}"
        )

        assert_one_sentence(run_klamm("node", path), str(port))
        assert_one_sentence(
            run_klamm("up", "--data", str(tmp_path / "up"), "--port", str(port), "--zookeeper-port", "0"), str(port)
        )


def meta_properties(directory: Path, broker_id: int, cluster_id: str) -> None:
    (directory / "logs").mkdir()
    (directory / "logs" / "meta.properties").write_text(f"version=0\nbroker.id={broker_id}\ncluster.id={cluster_id}\n")


def test_a_node_start_with_a_log_directory_of_another_broker_fails_with_its_broker_id(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    meta_properties(tmp_path, 7, "AAAAAAAAAAAAAAAAAAAAAg")
    path = properties(tmp_path, zookeeper__connect=zookeeper.connect_string)

    assert_one_sentence(run_klamm("node", path), "meta.properties", "7")


def test_a_node_start_with_a_log_directory_of_another_cluster_fails_with_its_cluster_id(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    meta_properties(tmp_path, 1, "AAAAAAAAAAAAAAAAAAAAAg")
    path = properties(tmp_path, zookeeper__connect=zookeeper.connect_string)

    assert_one_sentence(run_klamm("node", path), "meta.properties", "AAAAAAAAAAAAAAAAAAAAAg")


def test_a_node_start_with_a_log_directory_locked_by_another_node_fails(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD_LOCK, str(tmp_path / "logs")], stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        holder.stdout.readline()
        path = properties(tmp_path, zookeeper__connect=zookeeper.connect_string)

        assert_one_sentence(run_klamm("node", path), str(tmp_path / "logs"))
        holder.kill()


HOLD_LOCK = """
import os, sys, time
from klamm.runtime.disk import RealDisk
os.makedirs(sys.argv[1])
lock = RealDisk().lock(sys.argv[1] + "/.lock")
print("held", flush=True)
time.sleep(600)
"""


def test_klamm_up_without_java_reports_java_home_and_the_required_version(tmp_path: Path) -> None:
    done = run_klamm("up", "--data", str(tmp_path), environment={"JAVA_HOME": str(tmp_path / "no-jdk")})

    assert_one_sentence(done, "JAVA_HOME", "no-jdk", "Java 17")


def test_klamm_up_with_zero_nodes_is_refused(tmp_path: Path) -> None:
    assert_one_sentence(run_klamm("up", "--nodes", "0", "--data", str(tmp_path)), "--nodes 0")


def test_an_unknown_klamm_command_exits_with_status_2() -> None:
    done = run_klamm("dance")

    assert done.returncode == 2
    assert "dance" in done.stderr


RUBBISH = {
    "zeros": bytes(64),
    "a huge length": b"\x7f\xff\xff\xff" + b"x" * 100,
    "a negative length": b"\xff\xff\xff\xff",
    "a web browser": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "an unknown api": b"\x00\x00\x00\x0a\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff",
    "a cut message": b"\x00\x00\x00\x0c\x00\x03\x00\x08\x00\x00\x00\x01\xff\xff\x00\x00",
}


@pytest.mark.parametrize("rubbish", RUBBISH.values(), ids=RUBBISH)
def test_invalid_request_bytes_close_only_the_connection_that_sent_them(cluster: Cluster, rubbish: bytes) -> None:
    node = cluster.nodes[0]
    with socket.create_connection(("127.0.0.1", node.port), 5) as connection:
        connection.sendall(rubbish)
        connection.settimeout(5)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(100) == b"", "it must not answer"

    assert node.is_running
    assert node.broker_id in cluster.metadata(node).brokers
