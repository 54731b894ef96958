"""The cases of Apache Kafka 3.9's own controller tests: each by name, its fact, and the tests of ours that hold it.

`kafka_cases.txt` has a section for each of its suites, and a line for each case. A test of ours is `file::name`, in
this folder unless it says otherwise, or `judge::name` for a script played before both controllers.
"""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
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


def read_cases() -> list[tuple[str, str, str, list[str]]]:
    """Suite, name, fact, tests of ours."""
    cases = []
    suite = ""
    for line in (HERE / "kafka_cases.txt").read_text().splitlines():
        if line.startswith("["):
            suite = line.strip("[]")
        elif line:
            name, fact, tests = line.split(" | ")
            cases.append((suite, name, fact, tests.split(", ")))
    return cases


@cache
def names_in(path: Path, prefix: str) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(f.name.removeprefix(prefix) for f in functions if f.name.startswith(prefix))


def exists(test: str) -> bool:
    where, _, name = test.partition("::")
    if where == "judge":
        return any(name in names_in(path, "") for path in (TESTS / "differential" / "scripts").glob("*.py"))
    roots = (HERE, TESTS / "unit", TESTS)
    return any(name in names_in(root / f"{where}.py", "test_") for root in roots if (root / f"{where}.py").exists())


def test_every_case_is_there_once() -> None:
    cases = read_cases()

    assert Counter(suite for suite, *_ in cases) == SUITES
    assert len({(suite, name) for suite, name, *_ in cases}) == 173


@pytest.mark.parametrize("case", read_cases(), ids=lambda case: f"{case[0]}-{case[1]}")
def test_a_test_of_ours_holds_it(case: tuple[str, str, str, list[str]]) -> None:
    *_, fact, tests = case

    assert fact
    assert [test for test in tests if not exists(test)] == []
