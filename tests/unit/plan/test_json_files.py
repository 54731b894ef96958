"""The JSON of Kafka's tools, and how wrong files are refused: with the place, and what would be right."""

import msgspec
import pytest

from klamm.model.errors import UsageError
from klamm.model.ids import TopicPartition
from klamm.plan.json_files import (
    parse_election,
    parse_reassignment,
    parse_topics_to_move,
    reassignment_as_data,
)


def test_a_written_reassignment_has_kafkas_format() -> None:
    wanted = {TopicPartition("b", 0): (2, 1), TopicPartition("a", 10): (1,), TopicPartition("a", 2): (3, 1)}
    written = reassignment_as_data(wanted)  # type: ignore[arg-type]

    assert [(p["topic"], p["partition"]) for p in written["partitions"]] == [("a", 2), ("a", 10), ("b", 0)]
    assert written["partitions"][2] == {
        "topic": "b", "partition": 0, "replicas": (2, 1), "log_dirs": ["any", "any"],
    }  # fmt: skip
    assert parse_reassignment(msgspec.json.encode(written), "f") == wanted


def test_version_and_log_dirs_are_optional() -> None:
    content = b'{"partitions":[{"topic":"a","partition":0,"replicas":[1]}]}'

    assert parse_reassignment(content, "f") == {TopicPartition("a", 0): (1,)}


def one(rest: str = "", replicas: str = "[1,2]") -> str:
    return f'{{"topic":"a","partition":0,"replicas":{replicas}{rest}}}'


def listed(*entries: str) -> str:
    return f'{{"partitions":[{",".join(entries)}]}}'


WRONG = {
    "not json": ("{", "f is not valid"),
    "no list": ("{}", "partitions"),
    "empty": (listed(), "lists no partition"),
    "another version": ('{"version":2,"partitions":[]}', "Only version 1"),
    "a word for a number": (listed(one(replicas='["x"]')), "replicas"),
    "twice": (listed(one(), one()), r"partitions\[1\] \(a-0\) is listed twice"),
    "a broker twice": (listed(one(replicas="[1,1]")), "lists a broker twice"),
    "no replicas": (listed(one(replicas="[]")), "has no replicas"),
    "negative": (listed(one(replicas="[-1]")), "negative"),
    "too few directories": (listed(one(',"log_dirs":["any"]')), "2 replicas and 1 log_dirs"),
    "a directory": (listed(one(',"log_dirs":["any","/d"]')), "log directory /d"),
}


@pytest.mark.parametrize(("content", "why"), WRONG.values(), ids=WRONG)
def test_an_invalid_reassignment_is_rejected(content: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_reassignment(content.encode(), "f")


def test_topics_to_move() -> None:
    assert parse_topics_to_move(b'{"topics":[{"topic":"a"},{"topic":"b"}],"version":1}', "f") == ["a", "b"]
    with pytest.raises(UsageError, match="lists topic a twice"):
        parse_topics_to_move(b'{"topics":[{"topic":"a"},{"topic":"a"}]}', "f")


def test_elections() -> None:
    assert parse_election(b'{"partitions":[{"topic":"a","partition":3}]}', "f") == [TopicPartition("a", 3)]
    with pytest.raises(UsageError, match="a-3 twice"):
        parse_election(b'{"partitions":[{"topic":"a","partition":3},{"topic":"a","partition":3}]}', "f")
