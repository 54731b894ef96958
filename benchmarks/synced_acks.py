"""What it costs to sync records before they are acknowledged: nothing, `flush.messages=1`, `klamm.sync.before.ack`.

    python -m benchmarks.synced_acks [--seconds 5] [--producers 1 16] [--directory DIR] [--json FILE]

Three nodes as processes of their own, three replicas on each partition of a topic, acks=all. Each producer is a thread
with a connection of its own, that sends one record of 1,000 bytes to the leader and waits for its acknowledgement.
`--directory` chooses the device.
"""

import argparse
import json
import statistics
import struct
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from tests.support.cluster import Cluster

from benchmarks.slow_readers import connect, receive
from klamm.wire.api import ApiKey
from klamm.wire.frames import RequestHeader, decode_response, encode_request
from klamm.wire.messages import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.records import NewRecord, build_batch

VERSION: Final = 9
PARTITIONS: Final = 4
MODES: Final = {
    "no sync": {},
    "flush.messages=1": {"flush.messages": "1"},
    "klamm.sync.before.ack": {"klamm.sync.before.ack": "true"},
}


def produce_frame(topic: str, partition: int) -> bytes:
    """A Produce request with one record."""
    batch = build_batch([NewRecord(bytes(1_000))])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
    return b"".join(encode_request(RequestHeader(ApiKey.PRODUCE, VERSION, 1, "producer"), request))


def produce(address: str, topic: str, partition: int, until: float, took: list[float]) -> None:
    """Send one record after the other until the time; the ms that each took."""
    connected, frame = connect(address), produce_frame(topic, partition)
    while (began := time.perf_counter()) < until:
        connected.sendall(frame)
        answer = receive(connected, struct.unpack(">i", receive(connected, 4))[0])
        took.append((time.perf_counter() - began) * 1000)
        _, response = decode_response(answer, ApiKey.PRODUCE, VERSION)
        error = response.responses[0].partition_responses[0].error_code
        assert not error, f"{topic}-{partition}: error {error}"
    connected.close()


def measure_mode(cluster: Cluster, topic: str, producers: int, seconds: float) -> dict[str, float]:
    """Records per second and latencies of this many producers."""
    leaders = {number: found.leader for number, found in cluster.metadata().topics[topic].partitions.items()}
    until = time.perf_counter() + seconds
    took: list[list[float]] = [[] for _ in range(producers)]
    threads = [
        threading.Thread(
            target=produce,
            args=(cluster.node(leaders[n % PARTITIONS]).address, topic, n % PARTITIONS, until, took[n]),
        )
        for n in range(producers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = sorted(each for one in took for each in one)
    return {
        "records_per_s": len(every) / seconds,
        "p50_ms": statistics.median(every),
        "p99_ms": every[int(len(every) * 0.99)],
    }


def measure(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The figures by mode and number of producers."""
    figures = {}
    with tempfile.TemporaryDirectory(prefix="klamm-synced-", dir=options.directory) as directory:
        cluster = Cluster(Path(directory), 3)
        try:
            cluster.start()
            for number, (mode, configs) in enumerate(MODES.items()):
                topic = f"mode-{number}"
                cluster.create_topic(topic, PARTITIONS, 3, {"min.insync.replicas": "2", **configs})
                measure_mode(cluster, topic, 4, 1.0)
                for producers in options.producers:
                    figures[f"{mode}, {producers} producers"] = measure_mode(cluster, topic, producers, options.seconds)
        finally:
            cluster.stop()
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--producers", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--directory")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures = measure(options)
    table = Table("mode", "records/s", "p50 ms", "p99 ms")
    for name, each in figures.items():
        table.add_row(name, f"{each['records_per_s']:,.0f}", f"{each['p50_ms']:.1f}", f"{each['p99_ms']:.1f}")
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
