"""The journal is a topic that any client reads; `klamm explain` tells a story from it, over a controller's death."""

from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support.cluster import Cluster

from klamm.cli.commands.explain import run_explain
from klamm.explain.sources import Sources
from klamm.runtime.disk import RealDisk
from klamm.runtime.processes import ticks
from klamm.telemetry.journal import JOURNAL_TOPIC
from klamm.telemetry.journal_reader import Entry, distinct, parse_lines, read_journals


def published(cluster: Cluster) -> list[Entry]:
    settings = {"group.id": "none", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
    consumer.assign([TopicPartition(JOURNAL_TOPIC, 0, 0)])
    values = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        values.append(message.value() or b"")
    consumer.close()
    return distinct(parse_lines(b"\n".join(values)))


def names(entries: list[Entry]) -> set[tuple[object, ...]]:
    return {(e.node, e.cause, e.seq, e.kind) for e in entries}


def test_the_controller_journal_topic_holds_the_same_lines_as_the_journal_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(tmp_path, overrides={"klamm.journal.topic": JOURNAL_TOPIC})
    try:
        cluster.start()
        cluster.create_topic("orders", 2, 3)
        killed = cluster.node(cluster.controller_id)
        killed.kill()
        cluster.wait_until_complete()
        survivors = [n for n in cluster.nodes if n.is_running]
        directories = [n.journal_directory for n in survivors]

        def everything_told() -> bool:
            written = [
                e for e in read_journals(RealDisk(), directories) if "orders" in msgspec.json.encode(e.facts).decode()
            ]
            return bool(written) and names(written) <= names(published(cluster))

        assert any(everything_told() for _ in ticks(60, 0.5)), "the topic lacks lines that the files have"

        running = ",".join(n.address for n in survivors)
        assert run_explain(["orders-0"], Sources("nowhere", (), running)) == 0
        output = capsys.readouterr().out
        assert "sent LEADER_AND_ISR to nodes" in output
        assert "orders-0 then: leader is node" in output
    finally:
        cluster.kill()
