"""Operations broken at single steps: a sample of what `make steps` runs through."""

from collections import Counter

import pytest

from klamm.sim.cluster import run_script
from klamm.sim.operations import OPERATIONS, script_of
from klamm.sim.step_faults import STEP_FAULTS
from klamm.sim.steps import StepRun, clean_run, run_step, runs_of, sampled, table
from klamm.sim.traps import StepKind

RUNS_EACH = 3


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_invariant_holds_however_a_step_fails(operation: str) -> None:
    runs = list(runs_of(operation))
    chosen = list(sampled(runs, RUNS_EACH / len(runs)))

    assert len(runs) > len(STEP_FAULTS)
    assert [result for result in map(run_step, chosen) if result.violation] == []


def test_a_clean_run_tells_its_steps() -> None:
    outcome, steps = clean_run("create topic")

    assert outcome.violation is None
    assert [s.what for s in steps if s.kind is StepKind.WRITE][-1].count("/brokers/topics/t3/partitions/") == 3
    orders = Counter(s.what for s in steps if s.kind is StepKind.ORDER)
    assert orders == {"LEADER_AND_ISR": 3, "UPDATE_METADATA": 3}


def test_the_fault_comes_at_its_step() -> None:
    crashed = StepRun("create topic", StepKind.WRITE, 1, "crash before")

    story = run_script(script_of(crashed.operation, crashed.happening), tell=True).story

    assert str(crashed) == "create topic: crash before at write 1"
    assert any("crash before as write 1 is due: /controller_epoch /brokers/topics/t3/partitions" in s for s in story)


def test_the_table_counts_runs_and_what_broke() -> None:
    done = Counter({("create topic", "move"): 3, ("create topic", "crash after"): 2})

    assert table(done, Counter({("create topic", "move"): 1})).splitlines() == [
        "              crash after  move",
        "create topic  2            3 (1 broken)",
    ]
