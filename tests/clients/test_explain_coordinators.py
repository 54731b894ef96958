"""`klamm explain group` and `explain transaction` on real nodes; and produce and consume while nodes are killed."""

import json
import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from tests.clients.test_produce_consume import consume, produce, run, start
from tests.support.cluster import Cluster
from tests.support.forked_klamm import run_klamm
from tests.support.group_members import Members

from klamm.runtime.processes import ticks

PARTITIONS = 3
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes of klamm: only these write a journal."""
    overrides = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
        "group.initial.rebalance.delay.ms": "0",
    }
    with Cluster(tmp_path_factory.mktemp("explain"), overrides=overrides) as running:
        yield running


@pytest.fixture
def name(cluster: Cluster, own_name: str) -> str:
    cluster.create_topic(own_name, PARTITIONS, 3)
    return own_name


def explain(cluster: Cluster, *words: str, status: int = 0) -> list[str]:
    """The lines of the answer, from all journals and the coordinator."""
    journals = [word for node in cluster.nodes for word in ("--journal", node.log_directory)]
    where = ("--data", str(cluster.directory), "--zookeeper", cluster.zookeeper.connect_string)
    assert journals
    done = run_klamm("explain", *words, "--json", *where, timeout_s=TIMEOUT_S)
    assert done.returncode == status, done
    lines: list[str] = json.loads(done.stdout)["lines"]
    return lines


def test_explain_group_prints_rebalance_causes_members_and_their_partitions(
    cluster: Cluster, members: Members, name: str
) -> None:
    first = members.start("confluent")
    members.wait_until_shared(PARTITIONS, [first])
    second = members.start("kafka-python")
    members.wait_until_shared(PARTITIONS, [first, second])
    produce(cluster, name, b"".join(b"%d:%d\n" % (i, i) for i in range(30)), "-K", ":")
    members.wait_until("all is consumed", lambda: len(members.consumed) == 30)

    lines = explain(cluster, "group", name)
    assert lines[0].startswith(f"group {name} now: Stable, 2 members, assignor range, assigned in generation")
    assert re.match(r"coordinator: broker \d, the leader of __consumer_offsets-\d+", lines[1])
    assert sum(bool(re.match(r"    since .*: " + re.escape(name), line)) for line in lines) >= 2
    assert any("member joined" in line and "client" in line for line in lines)
    assert f"lag: 0 records in {PARTITIONS} partitions" in lines

    second.kill()
    members.wait_until_shared(PARTITIONS, [first])
    rebalances = [line for line in explain(cluster, "group", name) if "generation" in line]
    assert "no heartbeat came from" in rebalances[-1]
    first.stop()
    produce(cluster, name, b"unread\n")
    lines = explain(cluster, "group", name)
    assert any("the group is empty" in line for line in lines), lines
    assert any(line.startswith("lag: 1 records") and "it does not change" in line for line in lines), lines
    assert any(line.startswith("stuck:") and "no member has it" in line for line in lines), lines


def test_explain_transaction_prints_the_steps_and_the_reason_of_an_abort(cluster: Cluster, name: str) -> None:
    producer = Producer({
        "bootstrap.servers": cluster.bootstrap, "transactional.id": name, "transaction.timeout.ms": 2_000,
        "log_level": 0,
    })  # fmt: skip
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"1", partition=0)
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(name, b"2", partition=1)
    assert producer.flush(30) == 0

    lines = explain(cluster, "transaction", name)
    steps = ["producer initialized", f"begun {name}-0", f"commit decided {name}-0", "committed", f"begun {name}-1"]
    assert [step for step in steps if any(step in line for line in lines)] == steps
    for _ in ticks(TIMEOUT_S, 0.3):
        lines = explain(cluster, "transaction", name)
        if "next: nothing is pending, and nothing is wrong" in lines and any("aborted (" in line for line in lines):
            break  # the coordinator has finished, and its lines are in the file
    assert any(f"abort decided {name}-1: timed out: open for" in line for line in lines), lines
    assert any("CompleteAbort" in line for line in lines), lines


def test_explain_of_an_unknown_group_or_transactional_id_fails_and_names_the_id(cluster: Cluster) -> None:
    assert "There is no group nobody" in explain(cluster, "group", "nobody", status=1)[0]
    lines = explain(cluster, "transaction", "nobody", status=1)
    assert "There is no transactional id nobody" in lines[0]
    assert "TRANSACTIONAL_ID_NOT_FOUND" in lines[1]


def test_klamm_produce_and_consume_lose_and_duplicate_no_record_when_a_leader_is_killed(
    cluster: Cluster, name: str
) -> None:
    """Node 1 is killed while records are produced and consumed; the producer is idempotent."""
    lines = [b"%06d" % i for i in range(3_000)]
    consuming = start(cluster, "consume", "-t", name, "-G", name, "-o", "beginning", "-c", str(len(lines)))
    producing = start(cluster, "produce", "-t", name, "--batch-bytes", "2000")
    assert producing.stdin is not None
    for begin in range(0, len(lines), 100):
        producing.stdin.write(b"\n".join(lines[begin : begin + 100]) + b"\n")
        producing.stdin.flush()
        if begin == 1_000:
            cluster.node(1).kill()
    out, err = producing.communicate(timeout=120)
    assert producing.returncode == 0, err
    read, err = consuming.communicate(timeout=120)
    assert consuming.returncode == 0, err
    assert set(read.split()) == set(lines)
    cluster.node(1).start()
    cluster.wait_until_complete()
    stored = consume(cluster, name).split()
    assert sorted(stored) == lines
    assert out == b""
    assert run(cluster, "groups", "lag", "--group", name, "--max-lag", "0").status == 0
