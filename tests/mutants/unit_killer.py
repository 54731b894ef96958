"""The unit tests as a killer: those of the room first, short ones before long ones."""

import os
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from tests.mutants.children import Limits
from tests.mutants.killers import ROOT, TESTS, Item, Outcome, SwitchContext
from tests.mutants.mutations import Mutant
from tests.mutants.results import KillerName

UNIT: Final = "tests/unit"
LEAST_TIMEOUT_S: Final = 5
TIMES_BASELINE: Final = 20
"""A test that takes so many times as long as without a mutant fails."""
START_S: Final = 15
_NOT_FOR_MUTANTS: Final = (
    "tests/unit/mutants/",
    "tests/unit/test_system_access.py",
    "tests/unit/test_decisions_are_pure.py",
)
"""Tests of this command, and tests that read the sources on disk."""
_OPTIONS: Final = (
    "-x", "-q", "--no-header", "--tb=no", "--hypothesis-profile=mutants", "--rootdir", str(ROOT),
    "-p", "no:cacheprovider", "-p", "no:cov", "-p", "no:xdist",
)  # fmt: skip


class UnitTests:
    name: KillerName = "unit"
    sources: Final = (
        ROOT / "src" / "klamm",
        *sorted(path for path in (TESTS / "unit").iterdir() if path.name != "mutants"),
        TESTS / "support",
        TESTS / "conftest.py",
    )

    def prepare(self, item_count: int) -> None:
        """Nothing: tests and schedules start what they need."""

    def close(self) -> None:
        """Nothing to close."""

    def measure(self, switch_context: SwitchContext, directory: Path) -> list[Item]:
        recorder = _Recorder(switch_context)
        status = _run_pytest([UNIT], [recorder], directory, "--maxfail=1000000")
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            raise RuntimeError("The unit tests cannot be collected: run `make unit`.")
        return [Item(name, recorder.costs[name], name not in recorder.failed) for name in recorder.costs]

    def unmeasured(self) -> list[Item]:
        return []

    def is_near(self, mutant: Mutant, item: str) -> bool:
        return item.startswith(f"{UNIT}/{mutant.room}/")

    def ordered(self, mutant: Mutant, items: Sequence[Item]) -> list[Item]:
        return sorted(items, key=lambda item: (not self.is_near(mutant, item.name), item.cost_s))

    def run(self, items: Sequence[Item], directory: Path) -> Outcome:
        chosen = _Chosen(items)
        files = dict.fromkeys(item.name.partition("::")[0] for item in items)
        status = _run_pytest(list(files), [chosen], directory)
        if not chosen.failed and status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            chosen.failed = "tests cannot be collected"
        return Outcome(chosen.failed, chosen.count)

    def limits(self, items: Sequence[Item]) -> Limits:
        expected_s = sum(item.cost_s for item in items)
        return Limits(START_S + 5 * expected_s, 4 * START_S + 20 * expected_s)


def _run_pytest(files: Sequence[str], plugins: list[object], directory: Path, *more: str) -> int | pytest.ExitCode:
    os.chdir(ROOT)
    quiet = [HealthCheck.too_slow]
    phases = [Phase.explicit, Phase.generate]  # which example fails does not matter
    settings.register_profile(
        "mutants", deadline=None, suppress_health_check=quiet, derandomize=True, database=None, phases=phases
    )
    return pytest.main([*_OPTIONS, *more, "--basetemp", str(directory / "tests"), *files], plugins)


class _Recorder:
    """Gives each test a coverage context, and records its duration and whether it failed."""

    def __init__(self, switch_context: SwitchContext) -> None:
        self._switch_context = switch_context
        self.costs: dict[str, float] = {}
        self.failed: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not item.nodeid.startswith(_NOT_FOR_MUTANTS)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._switch_context(item.nodeid)
        began = time.process_time()
        result = yield
        self.costs[item.nodeid] = time.process_time() - began
        self._switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


class _Chosen:
    """Keeps the chosen tests, in their order and each with its timeout, and notes the one that fails."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = {item.name: (n, item.cost_s) for n, item in enumerate(items)}
        self.failed = ""
        self.count = 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._items]
        for item in chosen:
            limit_s = max(LEAST_TIMEOUT_S, TIMES_BASELINE * self._items[item.nodeid][1])
            item.add_marker(pytest.mark.timeout(limit_s), append=False)
        items[:] = sorted(chosen, key=lambda item: self._items[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.count += report.when == "call"
        if report.failed and not self.failed:
            self.failed = report.nodeid
