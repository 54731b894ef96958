"""A log that an unclean leader election truncates behind its readers, on klamm's nodes and on Apache Kafka's brokers.

And a leader that is cut off, and still believes that it leads.

Kafka's Java consumer is the witness of where to go on.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.clients.test_bad_input import run_klamm
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.kafka_tools import kafka_tools
from tests.unit.spark.scripts import job, options
from tests.unit.spark.stream_queries import Query

from klamm.embedded.nodes import klamm_node
from klamm.runtime.blocking import RealBlockingWorld
from klamm.spark.errors import DataLoss
from klamm.spark.plan import plan_ranges
from klamm.spark.ranges import TaskRanges
from klamm.spark.read_client import read_client
from klamm.spark.tasks import read_task

TOPIC = "orders"
KEPT, READ, END = 40, 90, 200
"""Both replicas have the records before KEPT; those before READ are read from the first leader, and lost by it."""


@pytest.fixture(params=["klamm", "apache"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, client_rounds: int) -> Iterator[Cluster]:
    if request.param == "apache" and client_rounds == 1:
        pytest.skip("brokers of Apache Kafka take ten seconds: `make prove ONLY=clients` runs it")
    if why := apache_kafka.why_missing():
        pytest.skip(why)
    command = klamm_node if request.param == "klamm" else apache_kafka.broker()
    with Cluster(tmp_path, command=command) as running:
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        running.create_topic(TOPIC, partitions=1, copies=2, config=config)
        yield running


def produce(cluster: Cluster, leader: int, first: int, end: int, text: str) -> None:
    """Records of the leader alone, all acknowledged: `old 0`, `old 1` and so on."""
    producer = Producer({"bootstrap.servers": cluster.node(leader).address, "linger.ms": 0, "log_level": 0})
    for number in range(first, end):
        producer.produce(TOPIC, f"{text} {number}")
        if number % 10 == 9:
            assert producer.flush(30) == 0  # some batches


def leave_follower_behind(cluster: Cluster) -> tuple[int, int]:
    """Write records that only the leader has; returns it and the follower."""
    state = cluster.partition_state(TOPIC)
    leader, (follower,) = int(state.leader), [int(b) for b in state.replicas if b != state.leader]
    cluster.node(follower).kill()
    cluster.wait_until("the follower is out of sync", lambda: list(cluster.partition_state(TOPIC).isr) == [leader])
    produce(cluster, leader, KEPT, READ, "old")
    return leader, follower


def leads(cluster: Cluster, broker: int) -> bool:
    """Whether this broker leads by its own metadata; one that has just started may not know the topic."""
    topics = cluster.describe([TOPIC], cluster.node(broker)).topics
    return TOPIC in topics and topics[TOPIC].partitions[0].leader == broker


def elect_follower(cluster: Cluster, leader: int, follower: int) -> None:
    """Elect the follower without the leader's last records, and let its log grow beyond them."""
    cluster.node(leader).kill()
    cluster.node(follower).start()
    cluster.node(follower).wait_until_listening()
    cluster.wait_until("the follower leads", lambda: leads(cluster, follower))
    produce(cluster, follower, KEPT, END, "new")


def java(cluster: Cluster, group: str, count: int) -> list[str]:
    """Read this many records as a group of Kafka's Java consumer, which commits at its end."""
    words = ("--topic", TOPIC, "--group", group, "--max-messages", str(count), "--timeout-ms", "60000")
    more = ("--consumer-property", "auto.offset.reset=earliest", "--property", "print.offset=true")
    said = kafka_tools().run(cluster.bootstrap, "kafka-console-consumer", *words, *more)
    return re.findall(r"^Offset:(\d+\t.*)$", said, re.MULTILINE)


def consume(cluster: Cluster, group: str, count: int) -> tuple[list[str], str]:
    """What `klamm consume` prints as a group: records and messages."""
    words = (
        "-t",
        TOPIC,
        "-G",
        group,
        "-o",
        "beginning",
        "-c",
        str(count),
        "-f",
        "%o\\t%s\\n",
        "--session-timeout",
        "6",
    )
    said = run_klamm("consume", *words, "--bootstrap-server", cluster.bootstrap)
    assert said.returncode == 0, said.stderr
    return said.stdout.splitlines(), said.stderr


def test_readers_go_on_where_an_unclean_leader_election_truncated_the_log(cluster: Cluster) -> None:
    query = Query(
        RealBlockingWorld(),  # type: ignore[arg-type]
        startingOffsets="earliest",
        kafka__bootstrap__servers=cluster.bootstrap,
    )
    groups = ("java", "klamm-after-java", "klamm", "java-after-klamm")
    produce(cluster, int(cluster.partition_state(TOPIC).leader), 0, KEPT, "old")
    for group in groups:  # so that the offsets topic exists
        assert len(java(cluster, group, KEPT)) == KEPT
    leader, follower = leave_follower_behind(cluster)
    query.run()
    for group in groups[:2]:
        assert len(java(cluster, group, READ - KEPT)) == READ - KEPT
    for group in groups[2:]:
        assert len(consume(cluster, group, READ - KEPT)[0]) == READ - KEPT

    elect_follower(cluster, leader, follower)

    new = [f"{offset}\tnew {offset}" for offset in range(KEPT, END)]
    for group in ("java", "java-after-klamm"):
        assert java(cluster, group, len(new)) == new
    for group in ("klamm", "klamm-after-java"):
        printed, messages = consume(cluster, group, len(new))
        assert printed == new
        assert f"orders-0: offset {READ} is not in the log (the log was truncated at offset {KEPT}" in messages

    with pytest.raises(DataLoss, match=rf"orders-0: offsets {KEPT} to {READ - 1} are lost: .*unclean leader election"):
        query.run()
    query.given["onDataLoss"] = "skip"
    query.restart()
    assert query.run() == []
    assert query.run() == [(0, offset) for offset in range(KEPT, END)]


def test_a_leader_that_is_cut_off_from_zookeeper_is_not_asked_after_its_successor(tmp_path: Path) -> None:
    with Cluster(tmp_path, network_faults=True) as running:
        running.create_topic(TOPIC, partitions=1, copies=2)
        state = running.partition_state(TOPIC)
        leader, (follower,) = int(state.leader), [int(b) for b in state.replicas if b != state.leader]
        produce(running, leader, 0, KEPT, "old")
        running.wait_until_in_sync(TOPIC, 1, 2)
        running.partition(leader)
        old, new = running.node(leader), running.node(follower)
        running.wait_until("the follower leads", lambda: leads(running, follower))
        produce(running, follower, KEPT, READ, "new")
        with read_client(RealBlockingWorld(), options(kafka__bootstrap__servers=new.address)) as brokers:
            (planned,) = plan_ranges(brokers).ranges
        assert leads(running, leader)  # so it still believes

        given = {"kafka__bootstrap__servers": f"{old.address},{new.address}", "kafkaConsumer__pollTimeoutMs": "20000"}
        pieces = list(read_task(RealBlockingWorld(), job(("offset",), given), TaskRanges((planned,))))

    assert [offset for piece in pieces for offset in piece.column(0).to_pylist()] == list(range(READ))
