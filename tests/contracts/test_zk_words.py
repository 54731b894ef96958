"""`klamm zk ls|get|tree` on a real ZooKeeper whose znodes kazoo wrote."""

import json
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from typer.testing import CliRunner

from klamm.cli.commands import app
from klamm.cli.zk import CannotRead
from klamm.cli.zookeeper import ZooKeeperServer


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
