"""An exception in an invariant check is reported as such, not as an error of the code under test."""

from collections.abc import Mapping
from typing import Any

import pytest

from klamm.sim import cluster
from klamm.sim.cluster import run_script
from klamm.sim.history.history import History
from klamm.sim.history.trace import ControllerElected, StateWritten
from klamm.sim.invariants.table import at_rest
from klamm.sim.scripts.options import Options
from klamm.sim.scripts.script import ScheduledAction, Script

QUIET = Script(Options.plain(1), [ScheduledAction(5.0, "create topic")], 10.0)


def errs(*_: Any) -> str | None:
    """An invariant check that raises."""
    raise KeyError("a-0")


BROKEN: Mapping[str, tuple[str, object, str]] = {
    "after an event of a controller": (
        "_INVARIANTS_BY_EVENT",
        {StateWritten: [("leader_is_in_sync", errs)]},
        "leader_is_in_sync: ",
    ),
    "after a transaction": (
        "_INVARIANTS_BY_EVENT",
        {ControllerElected: [("epoch_counts_elections", errs)]},
        "epoch_counts_elections: ",
    ),
    "at rest": (
        "at_rest",
        lambda: (*at_rest(), ("brokers_have_the_newest_state", errs)),
        "brokers_have_the_newest_state: ",
    ),
}


@pytest.mark.parametrize(("where", "what", "name"), BROKEN.values(), ids=BROKEN)
def test_an_exception_in_an_invariant_check_is_reported_with_its_code_line(
    monkeypatch: pytest.MonkeyPatch, where: str, what: object, name: str
) -> None:
    monkeypatch.setattr(cluster, where, what)

    violation = run_script(QUIET).violation

    assert violation is not None
    assert violation.startswith(f"{name}cannot tell, it raised KeyError('a-0') in test_errors_in_invariants.py:")


def test_an_exception_in_the_simulations_history_is_reported_with_its_code_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(History, "absorb", errs)

    violation = run_script(QUIET).violation

    assert violation is not None
    assert violation.startswith("the history: cannot tell, it raised KeyError('a-0') in ")
