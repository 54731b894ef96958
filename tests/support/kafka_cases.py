"""Cases of Apache Kafka's own tests: each by name, its fact, and the tests of ours that hold it.

A file of cases has a section for each of Kafka's suites, and a line for each case: `name | fact | tests`. A test of
ours is `file::name`, in the folder of the file of cases unless it says otherwise, with the words that tell one row
of its table from the others in brackets, or `judge::name` for a script played before both controllers. `none: `
tells why a case cannot apply to ours, `differs: ` quotes what `docs/differences.md` says where ours behaves
otherwise.
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parents[1]
DIFFERENCES = TESTS.parent / "docs" / "differences.md"
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


def read_cases(folder: Path) -> list[Case]:
    """The cases of `kafka_cases.txt` in this folder."""
    cases = []
    suite = ""
    for line in (folder / "kafka_cases.txt").read_text().splitlines():
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


def exists(test: str, folder: Path) -> bool:
    """Whether there is a test of ours of this name; `folder` is where the file of cases is."""
    where, _, name = test.partition("::")
    if where == "judge":
        return any(name in parse(path).functions for path in (TESTS / "differential" / "scripts").glob("*.py"))
    name, _, row = name.removesuffix("]").partition("[")
    files = [parse(path) for root in (folder, TESTS / "unit", TESTS) if (path := root / f"{where}.py").exists()]
    return any(f"test_{name}" in file.functions and (not row or row in file.texts) for file in files)
