"""The JSON files of Kafka's tools: their format, and the error for an invalid file."""

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


def test_a_reassignment_plan_is_written_in_the_format_of_kafka_reassign_partitions() -> None:
    wanted = {TopicPartition("b", 0): (2, 1), TopicPartition("a", 10): (1,), TopicPartition("a", 2): (3, 1)}
    written = reassignment_as_data(wanted)  # type: ignore[arg-type]

    assert [(p["topic"], p["partition"]) for p in written["partitions"]] == [("a", 2), ("a", 10), ("b", 0)]
    assert written["partitions"][2] == {
        "topic": "b", "partition": 0, "replicas": (2, 1), "log_dirs": ["any", "any"],
    }  # fmt: skip
    assert parse_reassignment(msgspec.json.encode(written), "f") == (wanted, {})


def test_a_reassignment_json_file_without_version_and_log_dirs_is_accepted() -> None:
    content = b'{"partitions":[{"topic":"a","partition":0,"replicas":[1]}]}'

    assert parse_reassignment(content, "f") == ({TopicPartition("a", 0): (1,)}, {})


def test_the_chosen_log_directories_of_a_reassignment_json_file_are_read_by_broker() -> None:
    content = reassignment_text(entry_text(',"log_dirs":["any","/d 2"]'), entry_text(',"log_dirs":["any","any"]', at=1))

    found = parse_reassignment(content.encode(), "f")

    assert found.log_dirs == {TopicPartition("a", 0): {2: "/d 2"}}


def entry_text(rest: str = "", replicas: str = "[1,2]", at: int = 0) -> str:
    return f'{{"topic":"a","partition":{at},"replicas":{replicas}{rest}}}'


def reassignment_text(*entries: str) -> str:
    """A reassignment file with these entries."""
    return f'{{"partitions":[{",".join(entries)}]}}'


WRONG = {
    "not json": ("{", r'f is not valid: .*\. Write for example {"version":1,"partitions":'),
    "no list": ("{}", "partitions"),
    "an empty list": (reassignment_text(), "lists no partition"),
    "another version": ('{"version":2,"partitions":[]}', 'Write "version": 1'),
    "a broker that is not a number": (reassignment_text(entry_text(replicas='["x"]')), "replicas"),
    "a partition listed twice": (
        reassignment_text(entry_text(), entry_text()),
        r"partitions\[1\] \(a-0\) is listed twice",
    ),
    "a broker listed twice": (reassignment_text(entry_text(replicas="[1,1]")), "lists a broker twice"),
    "no replicas": (reassignment_text(entry_text(replicas="[]")), "has no replicas"),
    "a negative broker id": (reassignment_text(entry_text(replicas="[-1]")), "negative"),
    "fewer log_dirs than replicas": (reassignment_text(entry_text(',"log_dirs":["any"]')), "2 replicas and 1 log_dirs"),
    "a relative log directory": (
        reassignment_text(entry_text(',"log_dirs":["any","d"]')),
        "'d', which is no abs",
    ),
}


@pytest.mark.parametrize(("content", "why"), WRONG.values(), ids=WRONG)
def test_an_invalid_reassignment_json_file_is_rejected(content: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_reassignment(content.encode(), "f")


def test_a_topics_to_move_json_file_that_lists_a_topic_twice_is_rejected() -> None:
    assert parse_topics_to_move(b'{"topics":[{"topic":"a"},{"topic":"b"}],"version":1}', "f") == ["a", "b"]
    with pytest.raises(UsageError, match="lists topic a twice"):
        parse_topics_to_move(b'{"topics":[{"topic":"a"},{"topic":"a"}]}', "f")


def test_a_topics_to_move_json_file_without_topics_does_not_stand_for_all() -> None:
    with pytest.raises(UsageError, match="lists no topic"):
        parse_topics_to_move(b'{"topics":[],"version":1}', "f")


def test_an_election_json_file_that_lists_a_partition_twice_is_rejected() -> None:
    assert parse_election(b'{"partitions":[{"topic":"a","partition":3}]}', "f") == [TopicPartition("a", 3)]
    with pytest.raises(UsageError, match="a-3 twice"):
        parse_election(b'{"partitions":[{"topic":"a","partition":3},{"topic":"a","partition":3}]}', "f")
