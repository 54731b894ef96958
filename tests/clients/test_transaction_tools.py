"""`klamm transactions` and Apache Kafka's own kafka-transactions find and abort the same."""

import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.clients.test_open_transaction import ONE_COPY
from tests.clients.test_tools import klamm
from tests.support.cluster import Cluster
from tests.support.kafka_tools import KafkaTools

from klamm.client.asynchronous import AsyncClient, AsyncSettings
from klamm.client.records import produce_error_code
from klamm.client.versions import Request
from klamm.embedded.nodes import Command
from klamm.model.cluster import parse_addresses
from klamm.runtime.world import real_world
from klamm.wire.api import ApiKey
from klamm.wire.messages import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.records import NewRecord, build_batch

TOPIC = "orders"
PRODUCER = 4_242
TOOL = "kafka-transactions"
OLD_MS = 25 * 60_000


@pytest.fixture(scope="module")
def cluster(node_command: Command, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node that accepts transactional records without asking the coordinator, so that transactions can hang."""
    overrides = {**ONE_COPY, "transaction.partition.verification.enable": "false"}
    running = Cluster(tmp_path_factory.mktemp("hanging"), 1, command=node_command, overrides=overrides)
    try:
        running.start()
        running.create_topic(TOPIC, 2, 1, {"retention.ms": "-1"})  # one timestamp is of 1970
        yield running
    finally:
        running.kill()


def begin_hanging(cluster: Cluster, partition: int, producer_id: int = PRODUCER) -> None:
    """A transaction that no coordinator knows of, begun long ago."""

    async def send() -> int:
        record = NewRecord(b"hanging", timestamp=real_world().clock.now_ms() - OLD_MS)
        batch = build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        data = [TopicProduceData(TOPIC, [PartitionProduceData(partition, batch)])]
        request = Request(ApiKey.PRODUCE, ProduceRequest("unknown", -1, 30_000, data), newest=11)
        [address] = parse_addresses(cluster.bootstrap)
        async with AsyncClient(real_world(), [address], AsyncSettings("test", 30)) as client:
            return produce_error_code(await client.ask(address, request))

    assert asyncio.run(send()) == 0


def run_json(cluster: Cluster, *words: str, status: int = 0) -> Any:
    return json.loads(klamm("transactions", *words, "-b", cluster.bootstrap, "--json", status=status).out)


def rows(tools: KafkaTools, cluster: Cluster, *words: str) -> list[list[str]]:
    """The rows of Kafka's table."""
    return [line.split() for line in tools.run(cluster.bootstrap, TOOL, *words).splitlines()[1:]]


def test_klamm_and_kafkas_tool_find_and_abort_hanging_transactions(cluster: Cluster, tools: KafkaTools) -> None:
    known = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "known"})
    known.init_transactions(30)
    known.begin_transaction()
    known.produce(TOPIC, b"x", partition=0, timestamp=1_000)  # old, but its coordinator knows it
    assert known.flush(30) == 0
    begin_hanging(cluster, 0)
    begin_hanging(cluster, 1)

    found = run_json(cluster, "find-hanging", "--topic", TOPIC, status=1)
    ours = [
        [p["topic"], p["partition"], p["producer_id"], p["epoch"], p["coordinator_epoch"], p["start_offset"],
         p["last_timestamp_ms"]] for p in found
    ]  # fmt: skip
    assert [row[:3] for row in ours] == [[TOPIC, 0, PRODUCER], [TOPIC, 1, PRODUCER]]
    kafkas = rows(tools, cluster, "find-hanging", "--topic", TOPIC)
    assert sorted(row[:7] for row in kafkas) == [list(map(str, row)) for row in ours]
    assert run_json(cluster, "find-hanging", "--broker-id", "1", status=1) == found
    assert run_json(cluster, "find-hanging", "--topic", TOPIC, "--max-transaction-timeout", "60") == []

    described = run_json(cluster, "describe-producers", "--topic", TOPIC, "--partition", "0")
    kafkas = rows(tools, cluster, "describe-producers", "--topic", TOPIC, "--partition", "0")
    assert sorted((p["producer_id"], p["start_offset"]) for p in described) == sorted(
        (int(row[0]), int(row[-1])) for row in kafkas
    )

    start = str(found[0]["start_offset"])
    abort = ["abort", "--topic", TOPIC]
    klamm("transactions", *abort, "--partition", "0", "--start-offset", start, "-y", "-b", cluster.bootstrap)
    assert [row[1] for row in rows(tools, cluster, "find-hanging", "--topic", TOPIC)] == ["1"]
    by_producer = ["--producer-id", str(PRODUCER), "--producer-epoch", "0", "--coordinator-epoch", "0"]
    klamm("transactions", *abort, "--partition", "1", *by_producer, "-y", "-b", cluster.bootstrap)
    assert run_json(cluster, "find-hanging", "--topic", TOPIC) == []
    known.abort_transaction(30)


def test_the_command_that_klamm_audit_prints_for_a_hanging_transaction_ends_it(cluster: Cluster) -> None:
    long = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "long"})
    long.init_transactions(30)
    long.begin_transaction()
    long.produce(TOPIC, b"x", partition=1, timestamp=1_000)  # old, but its coordinator has it
    assert long.flush(30) == 0
    begin_hanging(cluster, 1, PRODUCER + 1)
    audit = ("audit", "--zookeeper", cluster.zookeeper.connect_string)

    said = klamm(*audit, status=1).out
    [command] = re.findall(rf"klamm (transactions abort .*--topic {TOPIC} --partition 1 --start-offset \d+)", said)
    klamm(*shlex.split(command), "-y")

    assert "transactions abort" not in klamm(*audit, status=0).out
    long.commit_transaction(30)


def test_klamm_and_kafkas_tool_list_and_describe_transactions(cluster: Cluster, tools: KafkaTools) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "listed"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, b"x", partition=1)
    assert producer.flush(30) == 0

    [ours] = [t for t in run_json(cluster, "list") if t["transactional_id"] == "listed"]
    [kafkas] = [row for row in rows(tools, cluster, "list") if row[0] == "listed"]
    assert kafkas == ["listed", str(ours["coordinator"]), str(ours["producer_id"]), ours["state"]]
    [described] = run_json(cluster, "describe", "--transactional-id", "listed")
    [row] = rows(tools, cluster, "describe", "--transactional-id", "listed")
    assert row[1:5] == [str(described[name]) for name in ("transactional_id", "producer_id", "epoch", "state")]
    assert row[-1] == described["partitions"][0] == f"{TOPIC}-1"
    producer.commit_transaction(30)


BAD = {
    "find-hanging": "give --topic or --broker-id",
    "find-hanging --partition 1 --broker-id 1": "--partition needs --topic",
    "find-hanging --topic missing": "--topic missing: there is no such topic",
    "find-hanging --broker-id 7": "--broker-id 7: there is no such broker. Live brokers: 1.",
    f"abort --topic {TOPIC} --partition 0": "give either --start-offset, or --producer-id with both epochs",
    f"abort --topic {TOPIC} --partition 0 --producer-id 1": "are needed together",
}


@pytest.mark.parametrize(("words", "complaint"), BAD.items(), ids=BAD)
def test_klamm_transactions_refuses_bad_options_with_a_reason(cluster: Cluster, words: str, complaint: str) -> None:
    assert complaint in klamm("transactions", *words.split(), "-b", cluster.bootstrap, status=2).err


def test_klamm_transactions_names_a_given_partition_that_does_not_exist(cluster: Cluster) -> None:
    said = klamm("transactions", "describe-producers", "--topic", TOPIC, "--partition", "9", "-b", cluster.bootstrap,
                 status=1)  # fmt: skip
    assert f"{TOPIC}-9: UNKNOWN_TOPIC_OR_PARTITION" in said.err
