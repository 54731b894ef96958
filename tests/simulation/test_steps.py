"""Operations with a fault at single steps: a sample of `make fault-at-every-step`."""

from collections import Counter

import pytest

from klamm.sim import steps
from klamm.sim.cluster import run_script
from klamm.sim.faults.injection_points import StepKind
from klamm.sim.faults.step_faults import faults_of
from klamm.sim.scripts.operations import OPERATIONS, script_of
from klamm.sim.steps import StepResult, StepRun, Steps, clean_run, run_step, runs_of, sampled, table
from klamm.sim.workload.verbs import VERBS

RUNS_EACH = 3


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_fault_injected_at_any_step_of_an_operation_breaks_no_invariant(operation: str) -> None:
    runs = list(runs_of(operation))
    chosen = list(sampled(runs, RUNS_EACH / len(runs)))

    assert len(runs) >= len(faults_of(StepKind.WRITE))
    assert [result for result in map(run_step, chosen) if result.violation] == []


def test_a_simulated_operation_without_faults_returns_its_zookeeper_writes_and_requests() -> None:
    outcome, steps = clean_run("create topic")

    assert outcome.violation is None
    assert [s.what for s in steps if s.kind is StepKind.WRITE][-1].count("/brokers/topics/t3/partitions/") == 3
    orders = Counter(s.what for s in steps if s.kind is StepKind.CONTROL_REQUEST)
    assert orders == {"LEADER_AND_ISR": 3, "UPDATE_METADATA": 3}


def test_a_simulated_fault_is_injected_at_the_chosen_step_of_an_operation() -> None:
    crashed = StepRun("create topic", StepKind.WRITE, 1, "crash before")

    story = run_script(script_of(crashed.operation, crashed.action), with_story=True).story

    assert str(crashed) == "create topic: crash before at write 1"
    assert any("crash before as write 1 is due: /controller_epoch /brokers/topics/t3/partitions" in s for s in story)


@pytest.mark.parametrize(("fault", "written"), [("last operation refused", 1), ("first operation refused", 0)])
def test_a_simulated_operation_completes_after_zookeeper_refuses_part_or_all_of_a_write(
    fault: str, written: int
) -> None:
    """Of two first states, and what else was in the write; then what is left comes about all the same."""
    refused = StepRun("create topic", StepKind.WRITE, 2, fault)

    outcome = run_script(script_of(refused.operation, refused.action), with_story=True)

    story = [line for line in outcome.story if f"{fault} as write 2" in line or "StateWritten partition=t3" in line]
    assert outcome.violation is None
    assert "/t3/partitions/2/state" in story[0]
    assert len(story) == 4
    before_the_next_second = [line for line in story[1:] if float(line.split()[0]) < 16]
    assert len(before_the_next_second) == 2 * written


def test_znode_reads_count_as_steps_where_faults_can_be_injected() -> None:
    _, steps = clean_run("configs change")
    read = {path for s in steps if s.kind is StepKind.READ for path in s.what.split()}

    assert {"/config/changes", "/config/topics/t1", "/config/brokers/<default>"} <= read
    assert all(s.actor for s in steps)


READ_FAULTS = {
    "foreign write": "another client writes /config/changes/config_change_",
    "watch event lost": "another client writes /config/changes/config_change_",
    "response lost, applied": "response lost, applied as read",
}


@pytest.mark.parametrize(("fault", "sign"), READ_FAULTS.items(), ids=READ_FAULTS)
def test_a_simulated_fault_can_be_injected_at_a_znode_read(fault: str, sign: str) -> None:
    _, steps = clean_run("configs change")
    reads = [s.what for s in steps if s.kind is StepKind.READ]
    run = StepRun("configs change", StepKind.READ, reads.index("/config/changes") + 1, fault)

    outcome = run_script(script_of(run.operation, run.action), with_story=True)

    assert outcome.violation is None
    assert any(sign in line for line in outcome.story)


def test_only_faults_with_an_effect_on_a_read_or_write_step_are_injected_there() -> None:
    assert "foreign write" in faults_of(StepKind.READ)
    assert "foreign write" not in faults_of(StepKind.WRITE)
    assert "last operation refused" not in faults_of(StepKind.READ)
    assert "receiver crash" not in faults_of(StepKind.READ)


def test_every_simulated_workload_action_is_used_by_an_operation_with_injected_faults() -> None:
    begun = {h.what for actions in OPERATIONS.values() for h in actions}

    assert set(VERBS) <= {*begun, "create topic"}
    assert len(OPERATIONS) >= 15


def test_an_interrupted_run_of_fault_injections_prints_the_step_after_which_to_resume(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [StepRun("create topic", StepKind.WRITE, n, "/controller deleted") for n in range(1, 5)]

    def until_the_third(run: StepRun) -> StepResult:
        if run.number == 3:
            raise KeyboardInterrupt
        return StepResult(run, "isr_is_never_empty: t1-0" if run.number == 4 else None)

    monkeypatch.setattr(steps, "run_step", until_the_third)

    assert Steps(runs, after=0).run_remaining(cores=1) == 130
    assert "--after 2" in capsys.readouterr().out
    assert Steps(runs, after=3).run_remaining(cores=1) == 1
    assert "BROKEN create topic: /controller deleted at write 4: isr_is_never_empty" in capsys.readouterr().out


def test_the_table_of_fault_injections_counts_runs_and_violations_by_operation_and_fault() -> None:
    done = Counter({("create topic", "/controller deleted"): 3, ("create topic", "crash after"): 2})

    assert table(done, Counter({("create topic", "/controller deleted"): 1})).splitlines() == [
        "              crash after  /controller deleted",
        "create topic  2            3 (1 broken)",
    ]
