"""What clients that ask for much and do not read cost a node, and the clients beside them.

    python -m benchmarks.slow_readers [--readers 500] [--followers 50] [--mib 256] [--kafka] [--json FILE]

A node as a process of its own leads a topic with `--mib` of records; the node that follows it is stopped. A quiet
client fetches one batch at a time and measures its p99. Then `--readers` consumers ask for 55 MiB each, `--followers`
connections call themselves the follower and ask for 2 GiB, and none of them reads, while the quiet client goes on.
Fails where the node grows by more than 256 MiB, or the p99 of the quiet client more than doubles and is above 5 ms.
"""

import argparse
import json
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import psutil
from rich.console import Console
from tests.support import apache_kafka
from tests.support.cluster import Cluster

from klamm.embedded.nodes import Command, NodeProcess, klamm_node
from klamm.wire.api import ApiKey
from klamm.wire.frames import RequestHeader, decode_response, encode_request
from klamm.wire.messages import FetchPartition, FetchRequest, FetchTopic

TOPIC: Final = "slow"
PARTITIONS: Final = 8
VERSION: Final = 11
SEGMENT_MIB: Final = 16
"""Most of what is asked for is in closed segments, whose checksums a node checks before it sends them."""
MAX_GROWTH_MIB: Final = 256
P99_FLOOR_MS: Final = 5.0
QUIET_FETCHES: Final = 1_000
SETTLE_S: Final = 5.0
LOADER: Final = Path(__file__).with_name("load.py")


def fetch_frame(
    replica_id: int, max_bytes: int, partition_bytes: int, first: int = 0, count: int = PARTITIONS
) -> bytes:
    """A Fetch request frame."""
    request = FetchRequest(
        replica_id=replica_id,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic=TOPIC,
                partitions=[
                    FetchPartition(
                        partition=number % PARTITIONS,
                        current_leader_epoch=-1,
                        fetch_offset=0,
                        log_start_offset=-1,
                        partition_max_bytes=partition_bytes,
                    )
                    for number in range(first, first + count)
                ],
            )
        ],
    )
    return b"".join(encode_request(RequestHeader(ApiKey.FETCH, VERSION, 1, "slow-reader"), request))


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), 30)


def receive(connected: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = connected.recv(count)
        if not part:
            raise ConnectionResetError("the node closed the connection")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def time_small_fetches(address: str, count: int = QUIET_FETCHES) -> list[float]:
    """Milliseconds of each fetch of about one batch."""
    connected = connect(address)
    took = []
    for number in range(count):
        started = time.perf_counter()
        connected.sendall(fetch_frame(-1, 20_000, 20_000, number % PARTITIONS, 1))
        frame = receive(connected, struct.unpack(">i", receive(connected, 4))[0])
        took.append((time.perf_counter() - started) * 1000)
        if number == 0:
            _, response = decode_response(frame, ApiKey.FETCH, VERSION)
            assert len(response.responses[0].partitions[0].records) > 1000
    connected.close()
    return took


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def fill(cluster: Cluster, mib: int) -> None:
    """Produce this many MiB."""
    cluster.create_topic(TOPIC, PARTITIONS, 2, {"segment.bytes": str(SEGMENT_MIB << 20)})
    words = ["--bootstrap", cluster.bootstrap, "--topic", TOPIC, "--size", "1000", "--acks", "1", "--seconds", "1"]
    words += ["--batch-bytes", "16384"]
    size = 0.0
    while size < mib:
        done = subprocess.run([sys.executable, str(LOADER), "produce", *words], capture_output=True, check=True)
        size += json.loads(done.stdout)["records"] * 1000 / 2**20


def wait_until_leader(cluster: Cluster, node: NodeProcess) -> None:
    """Wait until the node leads every partition and is the only member of every ISR."""

    def leads_alone() -> bool:
        partitions = cluster.metadata(node).topics[TOPIC].partitions.values()
        return all(p.leader == node.broker_id and p.isrs == [node.broker_id] for p in partitions)

    cluster.wait_until("the stopped node has left every ISR", leads_alone, 60)


def measure(command: Command, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="klamm-slow-") as directory:
        cluster = Cluster(Path(directory), 2, command=command)
        try:
            cluster.start()
            fill(cluster, options.mib)
            node, follower = cluster.nodes
            follower.stop()
            wait_until_leader(cluster, node)
            assert node.child is not None
            process = psutil.Process(node.child.pid)
            time_small_fetches(node.address, 200)
            before = p99(time_small_fetches(node.address))
            memory, times = process.memory_info().rss, process.cpu_times()
            started = time.perf_counter()
            clients = []
            for replica_id, number, most in (
                (-1, options.readers, 55 << 20),
                (follower.broker_id, options.followers, 2**31 - 1),
            ):
                for index in range(number):
                    client = connect(node.address)
                    client.sendall(fetch_frame(replica_id, most, most, index))
                    clients.append(client)
            print(f"{len(clients)} clients asked within {time.perf_counter() - started:.1f} s", file=sys.stderr)
            started = time.perf_counter()
            peak, during = memory, list[float]()
            while time.perf_counter() - started < SETTLE_S:
                during += time_small_fetches(node.address, 100)
                peak = max(peak, process.memory_info().rss)
            return {
                "growth_mib": round((peak - memory) / 2**20),
                "p99_before_ms": round(before, 2),
                "p99_during_ms": round(p99(during), 2),
                "worst_during_ms": round(max(during), 2),
                "node_cpu_s": round(sum(process.cpu_times()[:2]) - sum(times[:2]), 1),
            }
        finally:
            cluster.kill()


def missed_limits(figures: dict[str, Any]) -> list[str]:
    """The limits that these figures exceed, as text."""
    problems = []
    if figures["growth_mib"] > MAX_GROWTH_MIB:
        problems.append(f"the node grew by {figures['growth_mib']} MiB, allowed are {MAX_GROWTH_MIB}")
    if figures["p99_during_ms"] > max(2 * figures["p99_before_ms"], P99_FLOOR_MS):
        problems.append(f"the p99 of others rose from {figures['p99_before_ms']} to {figures['p99_during_ms']} ms")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", type=int, default=500)
    parser.add_argument("--followers", type=int, default=50)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--kafka", action="store_true", help="also measure Apache Kafka 3.9.1")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console = Console()
    results = {"klamm": measure(klamm_node, options)}
    if options.kafka:
        results["Apache Kafka"] = measure(apache_kafka.broker(apache_kafka.BROKER_JAVA), options)
    for name, figures in results.items():
        console.print(name, figures)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    problems = missed_limits(results["klamm"])
    for problem in problems:
        console.print(problem)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
