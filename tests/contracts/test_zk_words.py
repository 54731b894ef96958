"""`klamm zk ls|get|tree` on a real ZooKeeper whose znodes kazoo wrote."""

import json
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from typer.testing import CliRunner

from klamm.cli.admin.znodes import CannotRead, delete, look, put, read
from klamm.cli.app import app
from klamm.cli.output import WrongUse
from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.model.errors import KlammError


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


def klamm(*words: str) -> str:
    done = CliRunner().invoke(app, ["zk", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_children(tree: str) -> None:
    assert klamm("ls", "/brokers", "--zookeeper", tree).split() == ["empty", "topics"]
    assert json.loads(klamm("ls", "/brokers", "--zookeeper", tree, "--json")) == ["empty", "topics"]


def test_a_value_is_laid_out_with_its_stat(tree: str) -> None:
    text = klamm("get", "/brokers/topics/a", "--zookeeper", tree)
    assert json.loads(text.partition("version = 0\n")[0]) == {"partitions": {"0": [1, 2]}}
    assert text.startswith('{\n  "partitions": {\n    "0": [')
    assert text.endswith("children = 1\n")

    found = json.loads(klamm("get", "/brokers/topics/raw", "--zookeeper", tree, "--json"))
    assert (found["value"], found["stat"]["version"], found["stat"]["ephemeral_owner"]) == ("ff00", 0, None)


def test_a_tree_has_numbers_in_order_and_values_on_one_line(tree: str) -> None:
    assert klamm("tree", "/brokers/topics/a", "--zookeeper", tree).splitlines() == [
        'a  {"partitions":{"0":[1,2]}}',
        "  partitions",
        "    9",
        "      state  plain text",
        "    10",
        "      state  {}",
    ]
    assert len(klamm("tree", "/brokers/topics/a", "--zookeeper", tree, "--depth", "1").splitlines()) == 2
    assert json.loads(klamm("tree", "--zookeeper", tree, "--json"))[1]["name"] == "brokers"


def test_what_is_not_there(tree: str) -> None:
    with pytest.raises(CannotRead, match="there is no such znode"):
        klamm("get", "/nowhere", "--zookeeper", tree)


def test_a_znode_is_written_and_made(tree: str) -> None:
    said = klamm("set", "/brokers/topics/raw", '{"a":1}', "--zookeeper", tree, "--yes")
    assert said == "/brokers/topics/raw is written, version 1; before: ff00\n"
    klamm("set", "/new/deep", "7", "--zookeeper", tree, "--yes")

    assert json.loads(klamm("get", "/brokers/topics/raw", "--zookeeper", tree, "--json"))["value"] == {"a": 1}
    assert json.loads(klamm("get", "/new/deep", "--zookeeper", tree, "--json"))["value"] == 7


def test_a_znode_is_deleted_with_what_is_below_it_only_if_that_is_said(tree: str) -> None:
    klamm("set", "/old/a/b", "x", "--zookeeper", tree, "--yes")

    with pytest.raises(KlammError, match="/old has 2 znodes below it: --recursive"):
        klamm("delete", "/old", "--zookeeper", tree, "--yes")
    assert klamm("ls", "/old", "--zookeeper", tree).split() == ["a"]
    assert klamm("delete", "/old", "--recursive", "--zookeeper", tree, "--yes").startswith(
        "/old and the 2 znodes below it deleted"
    )
    with pytest.raises(KlammError, match="there is no znode /old"):
        klamm("delete", "/old", "--zookeeper", tree, "--yes")


def test_nothing_is_written_where_nobody_agrees_or_the_json_is_none(tree: str) -> None:
    with pytest.raises(WrongUse, match="--yes"):
        klamm("set", "/brokers/empty", "x", "--zookeeper", tree)
    with pytest.raises(WrongUse, match="no JSON"):
        klamm("set", "/brokers/empty", "{", "--zookeeper", tree, "--yes")
    with pytest.raises(WrongUse, match="--yes"):
        klamm("delete", "/brokers/empty", "--zookeeper", tree)
    assert json.loads(klamm("get", "/brokers/empty", "--zookeeper", tree, "--json"))["value"] is None


def test_what_changed_meanwhile_is_left_alone(tree: str) -> None:
    seen = read(tree, 10, lambda client: look(client, "/brokers/topics/a"))
    klamm("set", "/brokers/topics/a", "{}", "--zookeeper", tree, "--yes")

    with pytest.raises(KlammError):
        read(tree, 10, lambda client: put(client, seen, b"old"))
    with pytest.raises(KlammError, match="BAD_VERSION"):
        read(tree, 10, lambda client: delete(client, seen))
    assert klamm("ls", "/brokers/topics/a/partitions", "--zookeeper", tree).split() == ["10", "9"]
