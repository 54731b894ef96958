"""Transactions of real producers: commit, abort, fencing, exactly-once copies, timeouts, a killed coordinator."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from kafka import KafkaProducer
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.forked_klamm import run_klamm
from tests.support.kafka_tools import kafka_tools

from klamm.coordinator.topic_partitions import partition_for
from klamm.embedded.nodes import Command
from klamm.runtime.processes import ticks

PARTITIONS = 3
TIMEOUT_S = 30


@pytest.fixture(scope="module")
def cluster(node_command: Command, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that tests may stop and start again; open transactions are looked at twice a second."""
    overrides = {
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": str(PARTITIONS),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "group.initial.rebalance.delay.ms": "0",
    }
    directory = tmp_path_factory.mktemp("transactions")
    with Cluster(directory, command=node_command, overrides=overrides) as running:
        yield running


@pytest.fixture
def name(cluster: Cluster, own_name: str) -> str:
    """A topic and a transactional id of the test's own; both have this name."""
    cluster.create_topic(own_name, PARTITIONS, 3, {"min.insync.replicas": "2"})
    return own_name


def transactional(cluster: Cluster, name: str, **changes: str | int) -> Producer:
    """A producer whose transactions may begin."""
    config = {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "log_level": 0, **changes}
    producer = Producer(config)
    producer.init_transactions(TIMEOUT_S)
    return producer


def produce(producer: Producer, topic: str, *values: str) -> None:
    """Produce the values to partitions 0, 1, 2, 0, ..., and wait until they are written."""
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0


def consumed(
    cluster: Cluster,
    topic: str,
    count: int,
    *,
    isolation: str = "read_committed",
    timeout_s: float = TIMEOUT_S,
    partitions: int = PARTITIONS,
) -> list[str]:
    """The values from the start of the topic, once there are so many and the partitions end."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "none",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: dict[tuple[int, int], str] = {}
    ended: set[int] = set()
    try:
        for _ in ticks(timeout_s, 0):
            message = consumer.poll(0.2)
            if message is None:
                continue
            _note(message, found, ended)
            if len(found) >= count and len(ended) == partitions:
                break
    finally:
        consumer.close()
    return sorted(found.values())


def _note(message: Message, found: dict[tuple[int, int], str], ended: set[int]) -> None:
    partition, error = message.partition(), message.error()
    assert partition is not None
    if error is not None and error.code() == KafkaError._PARTITION_EOF:
        ended.add(partition)
    elif error is None:
        ended.discard(partition)
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert isinstance(value, bytes)
        found[partition, offset] = value.decode()


def coordinator_id(cluster: Cluster, transactional_id: str) -> int:
    """The leader of the partition that keeps the id."""
    topic = cluster.metadata().topics["__transaction_state"]
    return int(topic.partitions[partition_for(transactional_id, PARTITIONS)].leader)


def test_read_committed_consumers_see_committed_transactions_and_no_aborted_ones(cluster: Cluster, name: str) -> None:
    producer = transactional(cluster, name)
    for number, commits in enumerate((True, False, True, False)):
        producer.begin_transaction()
        produce(producer, name, *(f"{number}-{p}-{commits}" for p in range(PARTITIONS)))
        if commits:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)

    expected = [f"{number}-{p}-True" for number in (0, 2) for p in range(PARTITIONS)]
    assert consumed(cluster, name, len(expected)) == expected
    assert len(consumed(cluster, name, 12, isolation="read_uncommitted")) == 12


def test_a_new_transactional_producer_fences_the_old_one_and_aborts_its_transaction(
    cluster: Cluster, name: str
) -> None:
    zombie = transactional(cluster, name)
    zombie.begin_transaction()
    produce(zombie, name, "zombie-0", "zombie-1", "zombie-2")

    producer = transactional(cluster, name)
    producer.begin_transaction()
    produce(producer, name, "new")
    producer.commit_transaction(TIMEOUT_S)

    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError._FENCED
    assert consumed(cluster, name, 1) == ["new"]


def test_a_transaction_not_ended_before_its_timeout_is_aborted(cluster: Cluster, name: str) -> None:
    slow = transactional(cluster, name, **{"transaction.timeout.ms": 1_000})
    slow.begin_transaction()
    produce(slow, name, "undecided-0", "undecided-1", "undecided-2")
    plain = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    produce(plain, name, "a", "b", "c")

    assert consumed(cluster, name, 3) == ["a", "b", "c"]
    with pytest.raises(KafkaException):
        slow.commit_transaction(TIMEOUT_S)


def copy(cluster: Cluster, source: str, target: str, group: str, crash_after: int | None = None) -> None:
    """Copy with exactly-once semantics to the end of the source; a crash leaves a transaction open."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6_000,
            "log_level": 0,
        }
    )
    consumer.subscribe([source])
    producer = transactional(cluster, f"copy-{group}")
    batches = 0
    idle = 0
    try:
        while idle < 3:
            messages = [m for m in consumer.consume(7, 3) if m.error() is None]
            idle = 0 if messages else idle + 1
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, message.value(), partition=message.partition() or 0)
            batches += 1
            if batches == crash_after:
                producer.flush(TIMEOUT_S)
                return
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
            producer.commit_transaction(TIMEOUT_S)
    finally:
        consumer.close()


def test_a_transactional_copy_that_crashes_resumes_without_loss_or_duplicates(cluster: Cluster, name: str) -> None:
    target = f"{name[:40]}-target"
    cluster.create_topic(target, PARTITIONS, 3)
    values = sorted(f"{number:03}" for number in range(60))
    plain = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    produce(plain, name, *values)

    copy(cluster, name, target, name, crash_after=3)
    copy(cluster, name, target, name)

    assert consumed(cluster, target, len(values)) == values
    assert len(consumed(cluster, target, 0, isolation="read_uncommitted")) > len(values)  # the crash left records


def test_a_transaction_commits_after_the_node_of_its_coordinator_is_killed(cluster: Cluster, name: str) -> None:
    producer = transactional(cluster, name)
    producer.begin_transaction()
    produce(producer, name, "0", "1", "2")
    node = cluster.node(coordinator_id(cluster, name))
    node.kill()
    try:
        produce(producer, name, "3", "4", "5")
        producer.commit_transaction(60)
        producer.begin_transaction()
        produce(producer, name, "aborted")
        producer.abort_transaction(60)

        assert consumed(cluster, name, 6, timeout_s=60) == ["0", "1", "2", "3", "4", "5"]
    finally:
        cluster.wait_until_forgotten(node.broker_id)
        node.start()
        node.wait_until_listening()
        cluster.wait_until_complete()
        cluster.wait_until_in_sync("__transaction_state", PARTITIONS, 3)


def test_kafka_python_commits_and_aborts_transactions(cluster: Cluster, name: str) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=name)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"committed", partition=0)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(name, b"aborted", partition=0)
        producer.flush()
        producer.abort_transaction()
    finally:
        producer.close()

    assert consumed(cluster, name, 1) == ["committed"]


def test_aiokafka_commits_and_aborts_transactions(cluster: Cluster, name: str) -> None:
    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=name)
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait(name, b"committed", partition=0)
            await producer.begin_transaction()
            await producer.send_and_wait(name, b"aborted", partition=0)
            await producer.abort_transaction()
        finally:
            await producer.stop()

    asyncio.run(main())

    assert consumed(cluster, name, 1) == ["committed"]


def klamm(cluster: Cluster, *words: str) -> str:
    """What `klamm transactions` prints."""
    done = run_klamm("transactions", *words, "-b", cluster.bootstrap)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_klamm_transactions_lists_describes_and_aborts_an_open_transaction(cluster: Cluster, name: str) -> None:
    producer = transactional(cluster, name)
    producer.begin_transaction()
    produce(producer, name, "undecided")
    plain = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    produce(plain, name, "behind")

    [listed] = json.loads(klamm(cluster, "list", "--json", "--state", "Ongoing"))
    [described] = json.loads(klamm(cluster, "describe", "--json", "--transactional-id", name))
    where = ("--topic", name, "--partition", "0", "--start-offset", "0")
    assert "Aborted the transaction" in klamm(cluster, "abort", *where, "--yes")

    assert (listed["transactional_id"], listed["coordinator"]) == (name, coordinator_id(cluster, name))
    assert (described["state"], described["partitions"]) == ("Ongoing", [f"{name}-0"])
    assert consumed(cluster, name, 1) == ["behind"]
    producer.abort_transaction(TIMEOUT_S)


@pytest.mark.skipif(apache_kafka.why_missing() is not None, reason=str(apache_kafka.why_missing()))
def test_kafka_transactions_tool_lists_and_describes_transactions(cluster: Cluster, name: str) -> None:
    producer = transactional(cluster, name)
    producer.begin_transaction()
    produce(producer, name, "0")

    def tool(*arguments: str) -> list[list[str]]:
        printed = kafka_tools().run(cluster.bootstrap, "kafka-transactions", *arguments)
        return [line.split() for line in printed.splitlines()]

    [listed] = [row for row in tool("list") if row[0] == name]
    described = tool("describe", "--transactional-id", name)[1]

    assert listed[1:2] == [str(coordinator_id(cluster, name))]
    assert listed[-1] == "Ongoing"
    assert f"{name}-0" in described
    producer.abort_transaction(TIMEOUT_S)
