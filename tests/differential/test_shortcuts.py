"""What is removed from both plays before the comparison, and what is not."""

from typing import Any

from tests.differential.normalize import write_order
from tests.differential.shortcuts import without_shortcuts

STATE = "/brokers/topics/a/partitions/0/state"
REQUEST = "/admin/delete_topics/a"
LIST = "/admin/reassign_partitions"
GONE = "UpdateMetadata -2 / {} / 0 / 0 of [1,2] decided in 1 offline [], by 100 epoch 1"
STOP = "StopReplica leader epoch -2, by 100 epoch 1"
DELETE = "StopReplica leader epoch -2 delete, by 100 epoch 1"


def left(*steps: dict[str, Any]) -> list[dict[str, Any]]:
    """What is left of these steps."""
    [play] = without_shortcuts(list(steps))
    return [{name: part for name, part in step.items() if part} for step in play]


def test_comparison_with_kafka_ignores_intermediate_states_of_a_topic_being_deleted() -> None:
    request = {
        "tree": {REQUEST: "null v0", STATE: "{} v1"},
        "writes": {STATE: ["set {}"]},
        "requests": {"1": {"a-0": [GONE.format("[1,2]"), GONE.format("[2]"), STOP, DELETE]}},
    }

    [step] = left(request)

    assert step == {
        "tree": {REQUEST: "null v0"},
        "requests": {"1": {"a-0": ["UpdateMetadata -2  of [1,2]", DELETE]}},
    }


def test_comparison_with_kafka_keeps_states_of_topics_not_being_deleted() -> None:
    other = STATE.replace("/a/", "/b/")
    step = {"tree": {REQUEST: "null v0", other: "{} v1"}, "writes": {other: ["set {}"]}}

    assert left(step) == [step]


def test_comparison_with_kafka_keeps_all_states_after_a_deletion_has_ended() -> None:
    queued = {"tree": {REQUEST: "null v0"}}
    deleted = {"tree": {REQUEST: None, STATE: None}, "writes": {REQUEST: ["delete"], STATE: ["delete"]}}
    anew = {"tree": {STATE: "{} v0"}, "writes": {STATE: ["create {}", "set {}"]}}

    assert left(queued, deleted, anew) == [queued, deleted, anew]


def test_comparison_with_kafka_ignores_znodes_of_pending_topic_deletions() -> None:
    first = {"tree": {LIST: "{list} v0"}}
    again = {
        "tree": {LIST: "{list} v1", "/klamm/pending_deletions/1": "null v0"},
        "writes": {LIST: ["set {list}"], "/klamm/pending_deletions/1": ["create null"]},
        "requests": {"1": {"a-0": [DELETE]}},
    }

    assert left(first, again) == [{"tree": {LIST: "{list}"}}, {"requests": {"1": {}}}]


def test_znode_writes_are_compared_in_order_grouped_by_topic_and_kind() -> None:
    writes = [
        (STATE, "set"), (STATE.replace("/0/", "/7/"), "set"), (STATE.replace("/a/", "/b/"), "set"),
        ("/brokers/topics/a", "set"), (LIST, "delete"),
    ]  # fmt: skip

    assert write_order(writes) == {
        "a": ["set state", "set topic", f"delete {LIST}"],
        "b": ["set state", f"delete {LIST}"],
    }


def test_a_list_znode_written_twice_in_a_step_is_compared_once() -> None:
    once = {"writes": {LIST: ["set {b}"]}, "order": {"a": [f"set {LIST}", "set topic"]}}
    twice = {"writes": {LIST: ["set {b}"] * 2}, "order": {"a": [f"set {LIST}", "set topic", f"set {LIST}"]}}

    assert left({"tree": {LIST: "{a} v0"}}, once) == left({"tree": {LIST: "{a} v0"}}, twice)
