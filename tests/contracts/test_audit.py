"""`klamm audit` on a real ZooKeeper with healthy and damaged znodes that kazoo wrote."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from klamm.audit.snapshot import CannotAudit
from klamm.cli.commands.audit import run_audit
from klamm.embedded.zookeeper import ZooKeeperServer

CHROOT = "/audited"
EMPTY = (
    "/brokers/ids", "/brokers/topics", "/config/topics", "/config/brokers", "/admin/delete_topics",
    "/isr_change_notification", "/log_dir_event_notification", "/config/changes",
)  # fmt: skip


@pytest.fixture
def tree(shared_zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    root = KazooClient(shared_zookeeper.connect_string)
    root.start()
    root.delete(CHROOT, recursive=True)
    for path in EMPTY:
        root.ensure_path(CHROOT + path)
    root.chroot = CHROOT
    yield root
    root.stop()
    root.close()


def write_znode(tree: KazooClient, path: str, value: object, **how: bool) -> None:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    tree.create(path, data, makepath=True, **how)


def add_broker(tree: KazooClient, broker: int, **how: bool) -> None:
    endpoint = {"listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}, "endpoints": ["PLAINTEXT://h:9092"]}
    facts = {"version": 5, "host": "h", "port": 9092, "jmx_port": -1, "timestamp": "0", "features": {}, **endpoint}
    write_znode(tree, f"/brokers/ids/{broker}", facts, **(how or {"ephemeral": True}))


def add_cluster(tree: KazooClient) -> None:
    for broker in (1, 2):
        add_broker(tree, broker)
    write_znode(
        tree, "/controller", {"version": 2, "brokerid": 1, "timestamp": "0", "kraftControllerEpoch": -1}, ephemeral=True
    )
    write_znode(tree, "/controller_epoch", b"0")
    tree.set("/controller_epoch", b"1")
    add_topic(tree, "orders", [1, 2])


def add_topic(tree: KazooClient, name: str, replicas: list[int], removing: Sequence[int] = (), **state: object) -> None:
    number = sum(name.encode())
    write_znode(tree, f"/config/topics/{name}", {"version": 1, "config": {}})
    topic_id = f"AAAAAAAAAAAAAAAAAAA{number:03d}"[:22]
    facts = {
        "version": 3,
        "topic_id": topic_id,
        "partitions": {"0": replicas},
        "adding_replicas": {},
        "removing_replicas": {"0": removing} if removing else {},
    }
    write_znode(tree, f"/brokers/topics/{name}", facts)
    written = {"controller_epoch": 1, "leader": replicas[0], "version": 1, "leader_epoch": 0, "isr": replicas, **state}
    write_znode(tree, f"/brokers/topics/{name}/partitions/0/state", written)


def audited(
    tree: KazooClient, server: ZooKeeperServer, capsys: pytest.CaptureFixture[str], *auth: str
) -> tuple[int, dict[str, Any]]:
    status = run_audit(f"{server.connect_string}{CHROOT}", True, 10, auth)
    return status, json.loads(capsys.readouterr().out)


def test_audit_of_a_healthy_cluster_has_no_findings(
    tree: KazooClient, shared_zookeeper: ZooKeeperServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_cluster(tree)

    status, said = audited(tree, shared_zookeeper, capsys)

    assert (status, said["healthy"], said["findings"]) == (0, True, [])
    assert (said["controller"], said["controller_epoch"], said["brokers"], said["partitions"]) == (1, 1, [1, 2], 1)


def test_the_audit_does_not_report_what_a_controller_is_doing_now(
    tree: KazooClient, shared_zookeeper: ZooKeeperServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_cluster(tree)
    add_topic(tree, "created", [1, 2])
    tree.delete("/brokers/topics/created/partitions", recursive=True)
    add_topic(tree, "moved", [2, 1], removing=[1])

    status, said = audited(tree, shared_zookeeper, capsys)

    assert (status, said["healthy"]) == (0, True)
    assert {(f["kind"], tuple(f["subjects"])) for f in said["findings"]} == {
        ("new partition", ("created-0",)),
        ("reassignment", ("moved-0",)),
    }


def test_the_audit_reports_a_deleted_state_of_a_topic_that_was_created_just_now(
    tree: KazooClient, shared_zookeeper: ZooKeeperServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_cluster(tree)
    tree.delete("/brokers/topics/orders/partitions/0/state")

    status, said = audited(tree, shared_zookeeper, capsys)

    assert status == 1
    assert [(f["kind"], f["subjects"]) for f in said["findings"]] == [("no leader", ["orders-0"])]


def test_audit_reports_malformed_znodes_and_changes_none(
    tree: KazooClient, shared_zookeeper: ZooKeeperServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_cluster(tree)
    add_broker(tree, 7, ephemeral=False)
    write_znode(tree, "/brokers/ids/8", b"{", ephemeral=True)
    add_topic(tree, "leaderless", [1, 2], leader=-1)
    add_topic(tree, "future", [1, 2], controller_epoch=9)
    write_znode(tree, "/brokers/topics/broken", b"not JSON")
    write_znode(tree, "/brokers/topics/orders/partitions/5/state", b"{}")
    write_znode(tree, "/admin/delete_topics/never", b"")
    write_znode(tree, "/admin/reassign_partitions", b"[]")
    write_znode(tree, "/brokers/ids/x", b"")
    write_znode(tree, "/config/brokers/2", b"zzz")
    write_znode(tree, "/feature", b"zzz")
    write_znode(tree, "/latest_producer_id_block", b"zzz")
    tree.delete("/log_dir_event_notification")
    before = {path: tree.exists(path).mzxid for path in ("/", "/brokers/topics", "/admin/delete_topics", "/controller")}

    status, said = audited(tree, shared_zookeeper, capsys)

    assert status == 1
    found = {(f["kind"], tuple(f["subjects"])) for f in said["findings"]}
    assert found >= {
        ("registration", ("/brokers/ids/7",)),
        ("malformed znode", ("/brokers/ids/8",)),
        ("malformed znode", ("/brokers/topics/broken",)),
        ("malformed znode", ("/admin/reassign_partitions",)),
        ("no leader", ("leaderless-0",)),
        ("epoch gap", ("future-0",)),
        ("stray partition", ("orders-5",)),
        ("orphaned deletion", ("never",)),
        ("registration", ("/brokers/ids/x",)),
        ("malformed znode", ("/config/brokers/2",)),
        ("malformed znode", ("/feature",)),
        ("malformed znode", ("/latest_producer_id_block",)),
        ("missing znode", ("/log_dir_event_notification",)),
    }
    assert {path: tree.exists(path).mzxid for path in before} == before


def test_audit_reports_a_znode_protected_by_an_acl_unless_credentials_are_given(
    tree: KazooClient, shared_zookeeper: ZooKeeperServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_cluster(tree)
    tree.set_acls("/config/topics/orders", [make_digest_acl("kafka", "secret", all=True)])

    status, said = audited(tree, shared_zookeeper, capsys)
    assert status == 1
    assert [(f["kind"], f["subjects"]) for f in said["findings"]] == [("unreadable znode", ["/config/topics/orders"])]

    status, said = audited(tree, shared_zookeeper, capsys, "digest:kafka:secret")
    assert (status, said["findings"]) == (0, [])


def test_audit_of_a_zookeeper_chroot_without_a_cluster_fails(shared_zookeeper: ZooKeeperServer) -> None:
    with pytest.raises(CannotAudit, match="no Kafka cluster at"):
        run_audit(f"{shared_zookeeper.connect_string}/nobody", False, 10, [])


def test_audit_fails_when_zookeeper_does_not_answer() -> None:
    with pytest.raises(CannotAudit, match="Cannot read ZooKeeper"):
        run_audit("127.0.0.1:1", False, 0.5, [])
