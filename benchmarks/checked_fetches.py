"""What it costs to check the records of closed segments before they are sent (`klamm.fetch.check.crcs`).

    python -m benchmarks.checked_fetches [--mib 256] [--rounds 5] [--json FILE]

A node as a process of its own leads a topic; one connection reads all of it from the page cache, as fast as it can,
with fetches of 1 MiB and of 64 KiB. The check is switched on and off between rounds. The figures are medians: MiB per
second, and milliseconds of processor time of the node per 100 MiB.
"""

import argparse
import json
import statistics
import struct
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from rich.console import Console
from rich.table import Table
from tests.support.cluster import Cluster

from benchmarks.slow_readers import TOPIC, VERSION, connect, fill, receive
from klamm.wire.api import ApiKey
from klamm.wire.frames import RequestHeader, decode_response, encode_request
from klamm.wire.messages import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.records import batches

SIZES: Final = {"1 MiB": 1 << 20, "64 KiB": 64 << 10}
KEY: Final = "klamm.fetch.check.crcs"
PROPAGATION_S: Final = 1.0


def switch(cluster: Cluster, *, is_on: bool) -> None:
    """Switch the check on or off for the first node."""
    entry = ConfigEntry(KEY, str(is_on).lower(), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, str(cluster.nodes[0].broker_id), incremental_configs=[entry])
    admin = cluster.admin()
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    time.sleep(PROPAGATION_S)


def read_partition(cluster: Cluster, partition: int, fetch_bytes: int) -> int:
    """Read a partition to its end; the bytes of its records."""
    connected = connect(cluster.nodes[0].address)
    offset = size = 0
    while True:
        wanted = FetchPartition(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            log_start_offset=-1,
            partition_max_bytes=fetch_bytes,
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=fetch_bytes,
            session_epoch=-1,
            topics=[FetchTopic(topic=TOPIC, partitions=[wanted])],
        )
        connected.sendall(b"".join(encode_request(RequestHeader(ApiKey.FETCH, VERSION, 1, "reader"), request)))
        frame = receive(connected, struct.unpack(">i", receive(connected, 4))[0])
        records = decode_response(frame, ApiKey.FETCH, VERSION)[1].responses[0].partitions[0].records or b""
        if not records:
            connected.close()
            return size
        for header in batches(records):
            offset, end = header.next_offset, header.position + header.size
        size += end


def measure(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """MiB/s and CPU per 100 MiB, by fetch size and setting."""
    rates: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="klamm-checked-") as directory:
        overrides = {"klamm.log.scrub.bytes.per.second": "0", "default.replication.factor": "1"}
        cluster = Cluster(Path(directory), 2, overrides=overrides)
        try:
            cluster.start()
            fill(cluster, options.mib)
            leader = cluster.metadata().topics[TOPIC].partitions
            own = [number for number, found in leader.items() if found.leader == cluster.nodes[0].broker_id]
            child = cluster.nodes[0].child
            assert child is not None
            process = psutil.Process(child.pid)
            for number in range(options.rounds * 2):
                is_on = bool(number % 2)
                switch(cluster, is_on=is_on)
                for name, fetch_bytes in SIZES.items():
                    before, began = process.cpu_times(), time.perf_counter()
                    size = sum(read_partition(cluster, partition, fetch_bytes) for partition in own) / 2**20
                    took, after = time.perf_counter() - began, process.cpu_times()
                    key = f"{name}, {'checked' if is_on else 'not checked'}"
                    rates.setdefault(key, []).append(size / took)
                    used = after.user + after.system - before.user - before.system
                    costs.setdefault(key, []).append(used * 1000 * 100 / size)
        finally:
            cluster.stop()
    return {
        key: {"mib_per_s": statistics.median(rates[key]), "cpu_ms_per_100_mib": statistics.median(costs[key])}
        for key in sorted(rates)
    }


def show(figures: Mapping[str, Mapping[str, float]]) -> None:
    """Print the figures as a table."""
    table = Table("fetches", "MiB/s", "ms of processor per 100 MiB")
    for name, each in figures.items():
        table.add_row(name, f"{each['mib_per_s']:,.0f}", f"{each['cpu_ms_per_100_mib']:.1f}")
    Console().print(table)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures = measure(options)
    show(figures)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
