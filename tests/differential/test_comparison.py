"""Which differences between two plays count."""

from typing import Any

from tests.differential.comparison import differences, last_requests_only, merges_requests
from tests.differential.scripts import SCRIPTS


def received(*texts: str) -> dict[str, Any]:
    """A step in which a broker received these requests."""
    return {"did": "kill 1", "requests": {"2": {"a-0": list(texts)}}}


def test_merged_control_requests_are_compared_with_kafka_by_the_last_of_each_kind() -> None:
    step = received("LeaderAndIsr 1 new, by 100", "UpdateMetadata 1", "LeaderAndIsr 2, by 100", "UpdateMetadata 2")

    assert last_requests_only(step)["requests"] == {"2": {"a-0": ["LeaderAndIsr 2, by 100 new", "UpdateMetadata 2"]}}


def test_a_missing_intermediate_partition_state_is_a_difference_unless_requests_are_merged() -> None:
    kafka, klamm = received("LeaderAndIsr 1, by 100", "LeaderAndIsr 2, by 100"), received("LeaderAndIsr 2, by 100")

    assert [d.place for d in differences([kafka], [klamm])] == ["requests 2 a-0"]
    assert list(differences([kafka], [klamm], merged=True)) == []


def test_a_different_last_partition_state_is_a_difference_even_if_requests_are_merged() -> None:
    kafka, klamm = received("LeaderAndIsr 1, by 100", "LeaderAndIsr 2, by 100"), received("LeaderAndIsr 1, by 100")

    assert [d.place for d in differences([kafka], [klamm], merged=True)] == ["requests 2 a-0"]


def test_generated_differential_scripts_merge_control_requests_unless_a_broker_delays_answers() -> None:
    assert not any(map(merges_requests, SCRIPTS))
    assert merges_requests("generated_21_10")
    assert not merges_requests("generated_30005")
