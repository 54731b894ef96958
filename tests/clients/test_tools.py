"""The operator's commands on a real cluster, beside confluent-kafka's AdminClient and Apache Kafka's own tools."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.kafka_tools import kafka_tools

from klamm.cli.main import main
from klamm.embedded.nodes import Command, NodeProcess
from klamm.runtime.ports import free_ports

TOPICS = "kafka-topics"
REASSIGN = "kafka-reassign-partitions"
RACKS = {1: "a", 2: "b", 3: "c"}
FILE = "--reassignment-json-file"


@pytest.fixture(scope="module")
def cluster(node_command: Command, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes in three racks, with metrics."""
    running = Cluster(tmp_path_factory.mktemp("tools"), command=node_command)
    for node, port in zip(running.nodes, free_ports(3), strict=True):
        node.properties |= {"broker.rack": RACKS[node.broker_id], "klamm.metrics.port": str(port)}
    try:
        running.start()
        with patch.dict(os.environ, {"KLAMM_BOOTSTRAP_SERVER": running.bootstrap}):
            yield running
    finally:
        running.kill()


class Said(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def klamm(*words: str, status: int = 0) -> Said:
    """As the process does it, in this one."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", ["klamm", *words]):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    said = Said(code, out.getvalue(), err.getvalue())
    assert code == status, (words, said)
    return said


def kafka(cluster: Cluster, tool: str, *words: str) -> str:
    if why := apache_kafka.why_missing():
        pytest.skip(why)
    return kafka_tools().run(cluster.bootstrap, tool, *words)


def replicas(cluster: Cluster, topic: str) -> dict[int, list[int]]:
    return {n: p.replicas for n, p in cluster.metadata().topics[topic].partitions.items()}


def leaders(cluster: Cluster, topic: str) -> set[int]:
    return {p.leader for p in cluster.metadata().topics[topic].partitions.values()}


def configs(cluster: Cluster, kind: ResourceType, name: str) -> dict[str, tuple[str, ConfigSource]]:
    """As confluent-kafka reads them."""
    admin, resource = cluster.admin(), ConfigResource(kind, name)
    found = admin.describe_configs([resource], request_timeout=20)[resource].result()
    return {n: (c.value, ConfigSource(c.source)) for n, c in found.items()}


def rows(text: str) -> list[dict[str, str]]:
    """Of a table in a pipe."""
    head, *lines = [line.split("\t") for line in text.splitlines()]
    return [dict(zip(head, line, strict=True)) for line in lines]


def kafkas_rows(text: str) -> list[dict[str, str]]:
    """`Topic: t  Partition: 0  Leader: 1 ...`"""
    return [dict(cell.partition(": ")[::2] for cell in line.strip().split("\t")) for line in text.splitlines() if line]


def away_from(cluster: Cluster) -> tuple[NodeProcess, Sequence[int]]:
    """A node that is not controller, and the other two."""
    controller = cluster.controller_id
    node = next(n for n in cluster.nodes if n.broker_id != controller)
    return node, [n.broker_id for n in cluster.nodes if n is not node]


def test_klamm_topics_commands_create_describe_alter_and_delete_topics_like_kafkas_tool(cluster: Cluster) -> None:
    made = ("--topic", "orders", "--partitions", "3", "--replication-factor", "2", "--config", "retention.ms=60000")
    assert klamm("topics", "create", *made, "--wait").out == "Created topic orders.\n"
    assert "TOPIC_ALREADY_EXISTS" in klamm("topics", "create", "--topic", "orders", status=1).err
    assert klamm("topics", "create", "--topic", "orders", "--if-not-exists", "--json").json["created"] is False

    table, partitions = klamm("topics", "describe", "--topic", "orders").out.split("\n\n")
    theirs, *their_partitions = kafkas_rows(kafka(cluster, TOPICS, "--describe", "--topic", "orders"))
    [ours] = rows(table)
    assert ours == {
        "topic": "orders",
        "topic id": theirs["TopicId"],
        "partitions": theirs["PartitionCount"],
        "replication factor": theirs["ReplicationFactor"],
        "configs": theirs["Configs"],
    }
    assert [(r["partition"], r["leader"], r["replicas"], r["isr"]) for r in rows(partitions)] == [
        (r["Partition"], r["Leader"], r["Replicas"], r["Isr"]) for r in their_partitions
    ]
    [described] = klamm("topics", "describe", "--topic-id", theirs["TopicId"], "--json").json
    assert {p["partition"]: p["replicas"] for p in described["partitions"]} == replicas(cluster, "orders")

    klamm("topics", "alter", "--topic", "orders", "--partitions", "5", "--wait")
    assert len(replicas(cluster, "orders")) == 5
    assert "INVALID_PARTITIONS" in klamm("topics", "alter", "--topic", "orders", "--partitions", "2", status=1).err
    assert "orders" in klamm("topics", "list", "--topic", "or.*").out.split()

    assert "--yes" in klamm("topics", "delete", "--topic", "orders", status=2).err
    klamm("topics", "delete", "--topic", "orders", "--yes", "--wait")
    assert "orders" not in cluster.metadata().topics
    assert "UNKNOWN_TOPIC_OR_PARTITION" in klamm("topics", "delete", "--topic", "orders", "--yes", status=1).err
    klamm("topics", "delete", "--topic", "orders", "--if-exists", "--yes")


def test_kafkas_tool_executes_klamms_reassignment_plan_and_klamm_executes_the_rollback(
    cluster: Cluster, tmp_path: Path
) -> None:
    klamm("topics", "create", "--topic", "moved", "--replica-assignment", "1:2,2:1,1:2,2:3", "--wait")
    before = replicas(cluster, "moved")
    plan = klamm("reassign", "plan", "--topic", "moved", "--remove-broker", "1", "--measure", "0", "--json")
    path = tmp_path / "plan.json"
    path.write_text(plan.out)
    wanted = {p["partition"]: p["replicas"] for p in plan.json["partitions"]}
    assert sorted(wanted) == [0, 1, 2]  # the fourth is not on broker 1
    assert all(set(r) == {2, 3} for r in wanted.values())

    executed = kafka(cluster, REASSIGN, "--execute", FILE, str(path), "--throttle", "50000000")
    status = klamm("reassign", "status", FILE, str(path), "--wait", "--json").json

    assert {p["state"] for p in status["partitions"]} == {"complete"}
    assert {**before, **wanted} == replicas(cluster, "moved")
    assert {"topic moved", "broker 2"} <= {removed["entity"] for removed in status["throttles_removed"]}
    assert no_throttle(cluster, "moved")

    rollback = tmp_path / "rollback.json"
    rollback.write_text(next(line for line in executed.splitlines() if line.startswith("{")))
    applied = klamm("reassign", "apply", FILE, str(rollback), "--throttle", "50000000", "--wait", "--json").json
    assert {p["partition"]: p["replicas"] for p in applied["current"]["partitions"]} == wanted
    assert replicas(cluster, "moved") == before
    assert no_throttle(cluster, "moved")
    assert kafka(cluster, REASSIGN, "--verify", FILE, str(rollback)).count("is completed") == 3


def test_kafkas_tool_executes_the_waves_that_drain_a_broker_and_their_rollbacks(
    cluster: Cluster, tmp_path: Path
) -> None:
    klamm("topics", "create", "--topic", "drained", "--replica-assignment", "1:2,2:1,1:3,2:3", "--wait")
    before = replicas(cluster, "drained")
    out = tmp_path / "plan"
    words = ("--topic", "drained", "--remove-broker", "1", "--measure", "0.1", "--wave-moves", "1")
    klamm("reassign", "plan", *words, "--out", str(out))
    waves = sorted(out.glob("wave-*.json"))
    assert len(waves) > 1

    def execute(path: Path) -> dict[int, list[int]]:
        """What the file names, once Kafka's tool has executed it."""
        kafka(cluster, REASSIGN, "--execute", FILE, str(path), "--throttle", "50000000")
        klamm("reassign", "status", FILE, str(path), "--wait")
        assert "is still in progress" not in kafka(cluster, REASSIGN, "--verify", FILE, str(path))
        return {p["partition"]: p["replicas"] for p in json.loads(path.read_text())["partitions"]}

    wanted = {number: of for path in waves for number, of in execute(path).items()}
    after = replicas(cluster, "drained")
    assert after == {**before, **wanted}
    assert all(set(of) == {2, 3} for of in after.values())
    for path in sorted(out.glob("rollback-*.json"), reverse=True):
        execute(path)
    assert replicas(cluster, "drained") == before
    assert no_throttle(cluster, "drained")


def test_klamm_reassign_plan_gives_a_broker_without_replicas_its_share(cluster: Cluster, tmp_path: Path) -> None:
    klamm("topics", "create", "--topic", "skewed", "--replica-assignment", ",".join(["1:2"] * 9), "--wait")
    out = tmp_path / "plan"
    klamm("reassign", "plan", "--topic", "skewed", "--measure", "0", "--out", str(out))
    klamm("reassign", "apply", FILE, str(out / "wave-001.json"), "--wait")
    held = [b for of in replicas(cluster, "skewed").values() for b in of]
    assert held.count(3) > 0
    assert len(held) == 18


def no_throttle(cluster: Cluster, topic: str) -> bool:
    of_topic = configs(cluster, ResourceType.TOPIC, topic)
    of_brokers = [configs(cluster, ResourceType.BROKER, str(n.broker_id)) for n in cluster.nodes]
    return not of_topic["leader.replication.throttled.replicas"][0] and not any(
        name.endswith("throttled.rate") and source is ConfigSource.DYNAMIC_BROKER_CONFIG
        for found in of_brokers
        for name, (_, source) in found.items()
    )


def test_klamm_reassign_shows_and_cancels_a_reassignment_to_a_paused_broker(cluster: Cluster, tmp_path: Path) -> None:
    node, (first, second) = away_from(cluster)
    asked = ",".join(n.address for n in cluster.nodes if n is not node)
    klamm("topics", "create", "--topic", "stuck", "--replica-assignment", f"{first}:{second}", "--wait")
    path = tmp_path / "stuck.json"
    entry = {"topic": "stuck", "partition": 0, "replicas": [first, node.broker_id]}
    path.write_text(json.dumps({"partitions": [entry]}))
    node.pause()
    try:
        begun = klamm("reassign", "apply", FILE, str(path), "-b", asked)
        assert f'"replicas":[{first},{second}]' in begun.out
        assert "REASSIGNMENT_IN_PROGRESS" in klamm("reassign", "apply", FILE, str(path), "-b", asked, status=1).err
        [standing] = rows(klamm("reassign", "status", FILE, str(path), "-b", asked, status=1).out)
        assert standing["state"] == f"in progress: broker {node.broker_id} not in sync yet"
        over = klamm("reassign", "status", FILE, str(path), "-b", asked, "--wait", "--timeout", "1", status=1)
        assert "the reassignment continues" in over.err
        [moving] = klamm("reassign", "list", "-b", asked, "--json").json
        assert moving["adding"] == [node.broker_id]
        cancelled = klamm("reassign", "cancel", "--topic", "stuck", "-b", asked, "--preserve-throttles")
        assert cancelled.out == "Cancelled: stuck-0\n"
        assert klamm("reassign", "list", "-b", asked, "--json").json == []
    finally:
        node.resume()
    cluster.wait_until_complete()
    assert replicas(cluster, "stuck") == {0: [first, second]}
    klamm("reassign", "cancel", FILE, str(path))
    assert no_throttle(cluster, "stuck")


def test_klamm_elect_preferred_moves_leaders_to_the_preferred_replicas(cluster: Cluster, tmp_path: Path) -> None:
    klamm("topics", "create", "--topic", "led", "--replica-assignment", "1:2,1:2", "--wait")
    path = tmp_path / "order.json"
    entries = [{"topic": "led", "partition": n, "replicas": [2, 1]} for n in (0, 1)]
    path.write_text(json.dumps({"version": 1, "partitions": entries}))
    klamm("reassign", "apply", FILE, str(path), "--wait")
    shown = rows(klamm("topics", "describe", "--topic", "led", "--non-preferred").out)
    assert [(r["leader"], r["preferred"], r["state"]) for r in shown] == [("1", "2", "not preferred")] * 2

    elected = klamm("elect", "--election-type", "preferred", "--topic", "led", "--partition", "0", "--json").json
    assert elected["elected"] == [{"topic": "led", "partition": 0}]
    path.write_text(json.dumps({"partitions": [{"topic": "led", "partition": n} for n in (0, 1)]}))
    said = rows(klamm("elect", "--election-type", "preferred", "--path-to-json-file", str(path)).out)
    assert {r["partition"]: r["election"] for r in said} == {"led-0": "not needed", "led-1": "elected"}
    cluster.wait_until("2 leads", lambda: leaders(cluster, "led") == {2})

    klamm("elect", "--election-type", "unclean", "--topic", "led", "--yes")
    assert "--yes" in klamm("elect", "--election-type", "unclean", "--all-topic-partitions", status=2).err
    refused = klamm("elect", "--election-type", "preferred", "--topic", "nothing", "--partition", "0", status=1)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in refused.err


def test_klamm_config_commands_set_get_unset_and_explain_configs(cluster: Cluster) -> None:
    klamm("topics", "create", "--topic", "kept", "--partitions", "1", "--wait")
    klamm("config", "set", "--topic", "kept", "retention.ms=1000", "cleanup.policy=compact,delete")
    found = configs(cluster, ResourceType.TOPIC, "kept")
    assert found["retention.ms"] == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    ours = klamm("config", "get", "--topic", "kept", "--all", "--json").json
    assert {n: c["value"] for n, c in ours.items()} == {n: value for n, (value, _) in found.items()}
    klamm("config", "unset", "--entity-type", "topics", "--entity-name", "kept", "retention.ms")
    misspelt = klamm("config", "unset", "--topic", "kept", "retention.sm", status=2)
    assert "There is no config retention.sm of topics. Did you mean retention.ms" in misspelt.err
    assert [r["key"] for r in rows(klamm("config", "get", "--topic", "kept").out)] == ["cleanup.policy"]

    everyone = ("--entity-type", "brokers", "--entity-default")
    klamm("config", "set", *everyone, "log.retention.ms=5000")
    klamm("config", "set", "--broker", "2", "log.retention.ms=7000")
    cluster.wait_until(
        "both are known",
        lambda: [configs(cluster, ResourceType.BROKER, b)["log.retention.ms"][0] for b in "12"] == ["5000", "7000"],
    )
    [own] = rows(klamm("config", "get", "--broker", "2").out)
    assert (own["value"], own["source"]) == ("7000", "DYNAMIC_BROKER_CONFIG")
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=5000" in own["set by"]
    klamm("config", "unset", "--broker", "2", "log.retention.ms")
    klamm("config", "unset", *everyone, "log.retention.ms")

    assert "INVALID_CONFIG" in klamm("config", "set", "--topic", "kept", "retention.mss=1", status=1).err
    assert "BROKER_NOT_AVAILABLE" in klamm("config", "get", "--broker", "9", "--timeout", "2", status=1).err
    [explained] = klamm("config", "explain", "cleanup.policy", "--topic", "kept", "--json").json
    assert explained["now"] == {"value": "compact,delete", "source": "DYNAMIC_TOPIC_CONFIG"}


def test_klamm_brokers_and_controller_commands_list_replicas_racks_and_the_controller(cluster: Cluster) -> None:
    brokers = {b["id"]: b for b in klamm("brokers", "--json").json}
    held = [b for t in cluster.metadata().topics.values() for p in t.partitions.values() for b in p.replicas]
    assert {b: f["holds"] for b, f in brokers.items()} == {b: held.count(b) for b in brokers}
    assert {b: f["rack"] for b, f in brokers.items()} == RACKS
    assert [b for b, f in brokers.items() if f["is_controller"]] == [cluster.controller_id]
    assert [d["path"] for d in brokers[1]["directories"]] == [cluster.node(1).log_directory]

    zookeeper = ("--zookeeper", cluster.zookeeper.connect_string)
    before = klamm("controller", "-b", cluster.node(2).address, *zookeeper, "--json").json
    assert before["controller"] == cluster.controller_id
    now = klamm("controller", "reelect", *zookeeper, "--yes", "--json").json
    assert (now["before"], now["epoch"]) == (before["controller"], before["epoch"] + 1)
    cluster.wait_until("all have heard", lambda: cluster.controller_id == now["controller"])


def test_klamm_controller_queues_reads_queue_depths_from_metrics_and_the_journal(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--brokers") == "apache":
        pytest.skip("the metrics page is klamm's")
    metrics = [w for n in cluster.nodes for w in ("--metrics", f"127.0.0.1:{n.properties['klamm.metrics.port']}")]
    journals = [w for n in cluster.nodes for w in ("--journal", n.journal_directory)]

    found = klamm("controller", "queues", *metrics, *journals, "--json").json
    assert {q["broker"] for q in found["queues"]} == {"1", "2", "3"}
    assert all(q["sent"] > 0 and "0.99" in q["waited_ms"] for q in found["queues"])
    assert "Connection refused" in klamm("controller", "queues", "--metrics", "127.0.0.1:1", status=1).err

    def standbys() -> list[str]:
        listed = klamm("controller", "-b", cluster.node(2).address, *metrics, "--json").json["standbys"]
        return sorted(s["state"] for s in listed)

    cluster.wait_until("the other nodes stand by", lambda: standbys() == ["controller", "current", "current"])
    assert "lag ms" in klamm("controller", "-b", cluster.node(2).address, *metrics).out


def test_klamm_commands_in_a_pipe_print_only_results_and_set_the_exit_status(cluster: Cluster) -> None:
    """Status 0, 1 and 2; nothing on stdout but what was asked for, one line on stderr."""

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "klamm", *words]
        given = {**os.environ, **environment}
        return subprocess.run(command, capture_output=True, text=True, env=given, timeout=60, check=False)

    listed = run("topics", "list")
    assert (listed.returncode, set(listed.stdout.split())) == (0, set(cluster.metadata().topics))
    nobody = run("brokers", "--timeout", "0.5", KLAMM_BOOTSTRAP_SERVER="127.0.0.1:1")
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert nobody.stderr.startswith("klamm: no broker answers at 127.0.0.1:1")
    assert nobody.stderr.count("\n") == 1
    assert run("reassign", "apply").returncode == 2


def test_klamm_commands_report_a_dead_broker_and_its_under_replicated_partitions(cluster: Cluster) -> None:
    klamm("topics", "create", "--topic", "copies", "--partitions", "1", "--replication-factor", "3", "--wait")
    node, _ = away_from(cluster)
    node.kill()
    cluster.wait_until_forgotten(node.broker_id)

    facts = {b["id"]: b for b in klamm("brokers", "--json", status=1).json}
    assert facts[node.broker_id]["problem"] == "not alive"
    behind = rows(klamm("topics", "describe", "--topic", "copies", "--under-replicated-partitions", status=1).out)
    assert [r["state"].split(", ")[-1] for r in behind] == ["under-replicated"]
    klamm("topics", "describe", "--topic", "copies", "--under-min-isr-partitions")
