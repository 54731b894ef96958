"""The cases of Apache Kafka 3.9's own controller tests, each with the tests of ours that hold it."""

from collections import Counter
from pathlib import Path

import pytest
from tests.support.kafka_cases import DIFFERENCES, DIFFERS, NONE, Case, exists, read_cases

HERE = Path(__file__).parent
CASES = read_cases(HERE)
SUITES = {
    "ControllerIntegrationTest": 54,
    "ReplicaStateMachineTest": 45,
    "PartitionStateMachineTest": 22,
    "ControllerChannelManagerTest": 18,
    "PartitionLeaderElectionAlgorithmsTest": 13,
    "ControllerContextTest": 10,
    "ControllerEventManagerTest": 6,
    "TopicDeletionManagerTest": 4,
    "ControllerFailoverTest": 1,
}


def test_the_table_of_kafkas_controller_tests_lists_every_test_once() -> None:
    assert Counter(case.suite for case in CASES) == SUITES
    assert len({(case.suite, case.name) for case in CASES}) == 173


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.suite}-{case.name}")
def test_every_row_of_kafkas_controller_tests_names_an_existing_klamm_test(case: Case) -> None:
    assert case.fact
    assert case.tests or case.shown.removeprefix(NONE)
    assert [test for test in case.tests if not exists(test, HERE)] == []


@pytest.mark.parametrize("case", [c for c in CASES if c.differs], ids=lambda case: f"{case.suite}-{case.name}")
def test_every_row_that_differs_from_kafkas_controller_quotes_the_differences_page(case: Case) -> None:
    assert case.differs.startswith(DIFFERS)
    assert case.differs.removeprefix(DIFFERS) in DIFFERENCES.read_text()


@pytest.mark.parametrize(
    "test",
    [
        "test_states::no_such_test",
        "test_elections::offline_election_picks_the_first_live_in_sync_replica_or_uncleanly_if_allowed[no row]",
        "judge::none",
    ],
)
def test_a_reference_to_a_missing_test_in_the_table_of_kafkas_tests_is_detected(test: str) -> None:
    assert not exists(test, HERE)
