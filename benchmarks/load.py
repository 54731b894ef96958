"""One loader process: produces or consumes through librdkafka as fast as it can and prints one JSON line.

    python benchmarks/load.py produce --bootstrap 127.0.0.1:9092 --topic t --size 100 --seconds 10 --acks all
    python benchmarks/load.py consume --bootstrap 127.0.0.1:9092 --topic t --records 5000000

Records are random JSON-like text of exactly `--size` bytes; rates are per second of wall clock, counted from
the first record sent or received to the last one acknowledged or received.
"""

import argparse
import json
import random
import resource
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

BATCH = 500


def produce(options: argparse.Namespace) -> dict[str, Any]:
    failed: list[str] = []
    acknowledged = 0

    def delivered(error: KafkaError | None, _message: object) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            failed.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "acks": options.acks,
            "linger.ms": 5,
            "batch.size": options.batch_bytes,
            "enable.idempotence": options.idempotent,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 512 * 1024,
            "compression.type": options.codec,
            "socket.nagle.disable": True,
            "delivery.report.only.error": True,
        },
        on_delivery=delivered,
    )
    dice = random.Random(7)
    values = [dice.randbytes(options.size // 2).hex()[: options.size].encode() for _ in range(1_000)]
    values = [v.ljust(options.size, b"x") for v in values]
    producer.list_topics(options.topic, timeout=30)
    started = time.monotonic()
    cpu_started = _cpu_s()
    sent = 0
    batches = [[{"value": v} for v in values[i : i + BATCH]] for i in range(0, len(values), BATCH)]
    until = started + options.seconds
    while time.monotonic() < until:
        for batch in batches:
            sent += _send(producer, options.topic, batch)
        producer.poll(0)
    left = producer.flush(60)
    seconds = time.monotonic() - started
    done = sent - left - len(failed)
    return {
        "records": done,
        "lost": left + len(failed),
        "errors": sorted(set(failed))[:3],
        "seconds": round(seconds, 3),
        "records_per_s": round(done / seconds),
        "mb_per_s": round(done * options.size / seconds / 1e6, 1),
        "client_cpu_s": round(_cpu_s() - cpu_started, 2),
    }


def _send(producer: Producer, topic: str, batch: list[dict[str, bytes]]) -> int:
    """Pass one batch to the producer; records that its full queue rejects are offered again."""
    pending = batch
    while pending:
        accepted = producer.produce_batch(topic, pending)
        if accepted < len(pending):
            pending = [m for m in pending if m.pop("_error", None) is not None]
            producer.poll(0.005)
        else:
            pending = []
    return len(batch)


def consume(options: argparse.Namespace) -> dict[str, Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": "load",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.min.bytes": 1,
            "fetch.message.max.bytes": 4 * 1024 * 1024,
            "queued.min.messages": 500_000,
            "queued.max.messages.kbytes": 256 * 1024,
            "check.crcs": False,
        }
    )
    partitions = consumer.list_topics(options.topic, timeout=30).topics[options.topic].partitions
    consumer.assign([TopicPartition(options.topic, p, OFFSET_BEGINNING) for p in partitions])
    first = None
    seen = size = 0
    cpu_started = _cpu_s()
    deadline = time.monotonic() + options.seconds
    while seen < options.records and time.monotonic() < deadline:
        messages = consumer.consume(10_000, timeout=0.2)
        if messages and first is None:
            first = time.monotonic()
        seen += len(messages)
        size += sum(map(len, messages)) if messages else 0
    seconds = time.monotonic() - (first or time.monotonic()) or 1e-9
    consumer.close()
    return {
        "records": seen,
        "missing": max(0, options.records - seen),
        "seconds": round(seconds, 3),
        "records_per_s": round(seen / seconds),
        "mb_per_s": round(size / seconds / 1e6, 1),
        "client_cpu_s": round(_cpu_s() - cpu_started, 2),
    }


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("produce", "consume"))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--acks", default="1")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--batch-bytes", type=int, default=1_000_000)
    parser.add_argument("--idempotent", action="store_true")
    options = parser.parse_args()
    print(json.dumps({"produce": produce, "consume": consume}[options.what](options)))


if __name__ == "__main__":
    main()
