"""The cases of Apache Kafka 3.9's own controller tests: each by name, its fact, and the tests of ours that hold it.

`kafka_cases.txt` has a section for each of its suites, and a line for each case. A test of ours is `file::name`, in
this folder unless it says otherwise, with the words that tell one row of its table from the others in brackets, or
`judge::name` for a script played before both controllers. `none: ` tells why a case cannot apply to ours, `differs: `
quotes what `docs/differences.md` says where ours behaves otherwise.
"""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

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


NONE = "none: "
DIFFERS = "differs: "
OUTSIDE_BRACKETS = re.compile(r", (?![^\[]*\])")


class Case(NamedTuple):
    suite: str
    name: str
    fact: str
    shown: str
    differs: str

    @property
    def tests(self) -> list[str]:
        return [] if self.shown.startswith(NONE) else OUTSIDE_BRACKETS.split(self.shown)


def read_cases() -> list[Case]:
    cases = []
    suite = ""
    for line in (HERE / "kafka_cases.txt").read_text().splitlines():
        if line.startswith("["):
            suite = line.strip("[]")
        elif line:
            name, fact, shown, *differs = line.split(" | ")
            cases.append(Case(suite, name, fact, shown, "".join(differs)))
    return cases


class File(NamedTuple):
    functions: frozenset[str]
    texts: frozenset[object]
    """Its constants: rows of tables are named by some of them."""


@cache
def parse(path: Path) -> File:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    functions = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return File(frozenset(functions), frozenset(n.value for n in nodes if isinstance(n, ast.Constant)))


def exists(test: str) -> bool:
    where, _, name = test.partition("::")
    if where == "judge":
        return any(name in parse(path).functions for path in (TESTS / "differential" / "scripts").glob("*.py"))
    name, _, row = name.removesuffix("]").partition("[")
    files = [parse(path) for root in (HERE, TESTS / "unit", TESTS) if (path := root / f"{where}.py").exists()]
    return any(f"test_{name}" in file.functions and (not row or row in file.texts) for file in files)


def test_the_table_lists_every_kafka_controller_test_once() -> None:
    cases = read_cases()

    assert Counter(case.suite for case in cases) == SUITES
    assert len({(case.suite, case.name) for case in cases}) == 173


@pytest.mark.parametrize("case", read_cases(), ids=lambda case: f"{case.suite}-{case.name}")
def test_every_kafka_case_names_an_existing_test(case: Case) -> None:
    assert case.fact
    assert case.tests or case.shown.removeprefix(NONE)
    assert [test for test in case.tests if not exists(test)] == []


@pytest.mark.parametrize("case", [c for c in read_cases() if c.differs], ids=lambda case: f"{case.suite}-{case.name}")
def test_every_differing_kafka_case_quotes_the_differences_page(case: Case) -> None:
    assert case.differs.startswith(DIFFERS)
    assert case.differs.removeprefix(DIFFERS) in (TESTS.parent / "docs" / "differences.md").read_text()


@pytest.mark.parametrize(
    "test",
    [
        "test_states::no_such_test",
        "test_elections::offline_election_picks_the_first_live_in_sync_replica_or_an_unclean_one_if_allowed[no row]",
        "judge::none",
    ],
)
def test_a_reference_to_a_missing_test_is_detected(test: str) -> None:
    assert not exists(test)
