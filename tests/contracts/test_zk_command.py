"""`klamm zk` on a real ZooKeeper with znodes that kazoo wrote."""

import json
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from typer.testing import CliRunner

from klamm.cli.admin.znodes import CannotRead, delete, read_state, run_with_session, write_state
from klamm.cli.app import app
from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.model.errors import KlammError, UsageError


@pytest.fixture(scope="module")
def tree(shared_zookeeper: ZooKeeperServer) -> Iterator[str]:
    client = KazooClient(f"{shared_zookeeper.connect_string}")
    client.start()
    for path, value in {
        "/brokers/topics/a": b'{"partitions":{"0":[1,2]}}',
        "/brokers/topics/a/partitions/10/state": b"{}",
        "/brokers/topics/a/partitions/9/state": b"plain text",
        "/brokers/topics/raw": b"\xff\x00",
        "/brokers/empty": b"",
    }.items():
        client.create(f"/shown{path}", value, makepath=True)
    yield f"{shared_zookeeper.connect_string}/shown"
    client.stop()
    client.close()


def run_klamm(*words: str) -> str:
    done = CliRunner().invoke(app, ["zk", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_klamm_zk_ls_prints_the_children_of_a_znode(tree: str) -> None:
    assert run_klamm("ls", "/brokers", "--zookeeper", tree).split() == ["empty", "topics"]
    assert json.loads(run_klamm("ls", "/brokers", "--zookeeper", tree, "--json")) == ["empty", "topics"]


def test_klamm_zk_get_prints_the_value_and_the_stat_of_a_znode(tree: str) -> None:
    text = run_klamm("get", "/brokers/topics/a", "--zookeeper", tree)
    assert json.loads(text.partition("version = 0\n")[0]) == {"partitions": {"0": [1, 2]}}
    assert text.startswith('{\n  "partitions": {\n    "0": [')
    assert text.endswith("children = 1\n")

    found = json.loads(run_klamm("get", "/brokers/topics/raw", "--zookeeper", tree, "--json"))
    assert (found["value"], found["stat"]["version"], found["stat"]["ephemeral_owner"]) == ("ff00", 0, None)


def test_klamm_zk_tree_sorts_znodes_numerically_and_prints_each_value_on_one_line(tree: str) -> None:
    assert run_klamm("tree", "/brokers/topics/a", "--zookeeper", tree).splitlines() == [
        'a  {"partitions":{"0":[1,2]}}',
        "  partitions",
        "    9",
        "      state  plain text",
        "    10",
        "      state  {}",
    ]
    assert len(run_klamm("tree", "/brokers/topics/a", "--zookeeper", tree, "--depth", "1").splitlines()) == 2
    assert json.loads(run_klamm("tree", "--zookeeper", tree, "--json"))[1]["name"] == "brokers"


def test_klamm_zk_fails_for_a_missing_znode(tree: str) -> None:
    with pytest.raises(CannotRead, match="There is no such znode"):
        run_klamm("get", "/nowhere", "--zookeeper", tree)
    with pytest.raises(CannotRead, match="There is no such znode"):
        run_klamm("tree", "/nowhere", "--zookeeper", tree)


def test_klamm_zk_set_writes_or_creates_a_znode(tree: str) -> None:
    output = run_klamm("set", "/brokers/topics/raw", '{"a":1}', "--zookeeper", tree, "--yes")
    assert output == "Wrote /brokers/topics/raw, version 1. Value before: ff00\n"
    run_klamm("set", "/new/deep", "7", "--zookeeper", tree, "--yes")

    assert json.loads(run_klamm("get", "/brokers/topics/raw", "--zookeeper", tree, "--json"))["value"] == {"a": 1}
    assert json.loads(run_klamm("get", "/new/deep", "--zookeeper", tree, "--json"))["value"] == 7


def test_klamm_zk_delete_requires_the_option_recursive_for_znodes_with_children(tree: str) -> None:
    run_klamm("set", "/old/a/b", "x", "--zookeeper", tree, "--yes")

    with pytest.raises(KlammError, match=r"/old has 2 znodes below it\. Pass --recursive"):
        run_klamm("delete", "/old", "--zookeeper", tree, "--yes")
    assert run_klamm("ls", "/old", "--zookeeper", tree).split() == ["a"]
    assert run_klamm("delete", "/old", "--recursive", "--zookeeper", tree, "--yes").startswith(
        "Deleted /old and the 2 znodes below it"
    )
    with pytest.raises(KlammError, match="There is no znode /old"):
        run_klamm("delete", "/old", "--zookeeper", tree, "--yes")


def test_klamm_zk_set_and_delete_write_nothing_without_confirmation_or_with_malformed_json(tree: str) -> None:
    with pytest.raises(UsageError, match="--yes"):
        run_klamm("set", "/brokers/empty", "x", "--zookeeper", tree)
    with pytest.raises(UsageError, match="not valid JSON"):
        run_klamm("set", "/brokers/empty", "{", "--zookeeper", tree, "--yes")
    with pytest.raises(UsageError, match="--yes"):
        run_klamm("delete", "/brokers/empty", "--zookeeper", tree)
    assert json.loads(run_klamm("get", "/brokers/empty", "--zookeeper", tree, "--json"))["value"] is None


def test_klamm_zk_set_does_not_overwrite_a_znode_that_changed_meanwhile(tree: str) -> None:
    seen = run_with_session(tree, 10, lambda client: read_state(client, "/brokers/topics/a"))
    run_klamm("set", "/brokers/topics/a", "{}", "--zookeeper", tree, "--yes")

    with pytest.raises(KlammError):
        run_with_session(tree, 10, lambda client: write_state(client, seen, b"old"))
    with pytest.raises(KlammError, match="BAD_VERSION"):
        run_with_session(tree, 10, lambda client: delete(client, seen))
    assert run_klamm("ls", "/brokers/topics/a/partitions", "--zookeeper", tree).split() == ["10", "9"]
