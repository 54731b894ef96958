"""The cases of Apache Kafka 3.9's own tests of the group coordinator, each with the tests of ours that hold it."""

from collections import Counter
from pathlib import Path

import pytest
from tests.support.kafka_cases import NONE, Case, exists, read_cases

HERE = Path(__file__).parent
SUITES = {"GroupCoordinatorTest": 163, "GroupMetadataManagerTest": 69}


def test_the_table_of_kafkas_coordinator_tests_lists_every_test_once() -> None:
    cases = read_cases(HERE)

    assert Counter(case.suite for case in cases) == SUITES
    assert len({(case.suite, case.name) for case in cases}) == sum(SUITES.values())


@pytest.mark.parametrize("case", read_cases(HERE), ids=lambda case: f"{case.suite}-{case.name}")
def test_every_row_of_kafkas_coordinator_tests_names_an_existing_klamm_test(case: Case) -> None:
    assert case.fact
    assert case.tests or case.shown.removeprefix(NONE)
    assert [test for test in case.tests if not exists(test, HERE)] == []
