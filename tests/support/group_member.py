"""A consumer of a group as a process of its own, with one of three libraries; it prints what happens as JSON lines.

    python -m tests.support.group_member LIBRARY BOOTSTRAP GROUP TOPIC [INSTANCE_ID]

LIBRARY is confluent, kafka-python or aiokafka; with `-cooperative` its rebalances are (aiokafka has none). It prints
each record as read, commits after every batch, and prints its records as committed then.
"""

import asyncio
import json
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

SESSION_TIMEOUT_MS = 6_000
STATIC_SESSION_TIMEOUT_MS = 30_000
"""A static member that was killed must be back before."""
HEARTBEAT_MS = 500
COOPERATIVE = "-cooperative"


class Options(NamedTuple):
    bootstrap: str
    group: str
    topic: str
    instance_id: str | None
    cooperative: bool

    @property
    def session_timeout_ms(self) -> int:
        return STATIC_SESSION_TIMEOUT_MS if self.instance_id else SESSION_TIMEOUT_MS


def say(event: str, **values: Any) -> None:
    print(json.dumps({"event": event, **values}), flush=True)


class Assigned:
    """The partitions that the member has: its client tells what comes and what goes."""

    def __init__(self) -> None:
        self._partitions: set[int] = set()

    def add(self, partitions: Iterable[Any]) -> None:
        self._partitions |= {p.partition for p in partitions}
        say("assigned", partitions=sorted(self._partitions))

    def remove(self, partitions: Iterable[Any]) -> None:
        gone = {p.partition for p in partitions}
        self._partitions -= gone
        say("revoked", partitions=sorted(gone))
        say("assigned", partitions=sorted(self._partitions))


def say_records(event: str, records: Iterable[tuple[int, int, bytes]]) -> None:
    """One event for each record, given as partition, offset and value."""
    for partition, offset, value in records:
        say(event, partition=partition, offset=offset, value=value.decode())


def run_confluent(options: Options) -> None:
    from confluent_kafka import Consumer, KafkaException

    config = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": options.session_timeout_ms,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": "cooperative-sticky" if options.cooperative else "range",
    }
    if options.instance_id:
        config["group.instance.id"] = options.instance_id
    consumer = Consumer(config)
    assigned = Assigned()
    consumer.subscribe(
        [options.topic], on_assign=lambda _, given: assigned.add(given), on_revoke=lambda _, gone: assigned.remove(gone)
    )
    while True:
        messages = [m for m in consumer.consume(100, 0.2) if not m.error()]
        records = [(m.partition() or 0, m.offset() or 0, m.value() or b"") for m in messages]
        if records:
            say_records("read", records)
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                say("refused", error=str(error))
            else:
                say_records("committed", records)


def listener_of(base: type, assigned: "Assigned") -> Any:
    """Return a rebalance listener of a client library, derived from its class, that keeps `assigned` current."""

    class Listener(base):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            assigned.remove(revoked)

        def on_partitions_assigned(self, added: Any) -> None:
            assigned.add(added)

    return Listener()


def run_kafka_python(options: Options) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

    assigned = Assigned()
    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap.split(","),
        group_id=options.group,
        group_instance_id=options.instance_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[CooperativeStickyAssignor if options.cooperative else RangePartitionAssignor],
    )
    consumer.subscribe([options.topic], listener=listener_of(ConsumerRebalanceListener, assigned))
    while True:
        records = [(r.partition, r.offset, r.value) for batch in consumer.poll(200).values() for r in batch]
        if records:
            say_records("read", records)
            try:
                consumer.commit()
            except KafkaError as error:
                say("refused", error=str(error))
            else:
                say_records("committed", records)


async def run_aiokafka(options: Options) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    assigned = Assigned()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        group_instance_id=options.instance_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=(RangePartitionAssignor,),
    )
    consumer.subscribe([options.topic], listener=listener_of(ConsumerRebalanceListener, assigned))
    await consumer.start()
    while True:
        fetched = await consumer.getmany(timeout_ms=200)
        records = [(r.partition, r.offset, r.value) for batch in fetched.values() for r in batch]
        if records:
            say_records("read", records)
            try:
                await consumer.commit()
            except KafkaError as error:
                say("refused", error=str(error))
            else:
                say_records("committed", records)


def main() -> None:
    name, bootstrap, group, topic, *rest = sys.argv[1:]
    library = name.removesuffix(COOPERATIVE)
    options = Options(bootstrap, group, topic, rest[0] if rest else None, library != name)
    if library == "aiokafka":
        assert not options.cooperative, "aiokafka has no cooperative assignor"
        asyncio.run(run_aiokafka(options))
    else:
        {"confluent": run_confluent, "kafka-python": run_kafka_python}[library](options)


if __name__ == "__main__":
    main()
