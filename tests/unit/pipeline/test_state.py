"""The directory of a pipeline: its lock, where a reset begins, and its status."""

from pathlib import Path

import pytest

from klamm.pipeline.position import Checkpoint
from klamm.pipeline.spec import parse_spec
from klamm.pipeline.state import BatchStatus, Start, StateDirectory, StateUnusable, Status
from klamm.pipeline.text import batch_line, status_lines
from klamm.runtime.disk import RealDisk

BATCH = BatchStatus(12, 1_000, 20_000, 204, 2.0, {"read": 1.5, "sink": 0.5}, {"orders-0": 1, "orders-1": 41_000})


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(RealDisk(), str(tmp_path / "orders.state"))


def test_a_state_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    state = StateDirectory(RealDisk(), str(tmp_path / "file" / "state"))

    with pytest.raises(StateUnusable, match="Set the field state to another one"), state.locked():
        pass


def test_a_reset_removes_the_checkpoint_and_keeps_the_new_start(state: StateDirectory) -> None:
    with state.locked():
        checkpoint = Path(state.checkpoint)
        checkpoint.mkdir()
        (checkpoint / "metadata").write_text('{"id":"abc"}')
        assert (state.query_id(), state.start()) == ("abc", None)

        state.reset(Start(123))

        assert (state.query_id(), state.start()) == (None, Start(123))
        assert sorted(p.name for p in Path(state.path).iterdir()) == ["lock", "start.json"]


class DyingDisk(RealDisk):
    """The process is killed before it calls this method."""

    def __init__(self, method: str) -> None:
        setattr(self, method, self._die)

    def _die(self, *_: object) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("method", ["write_atomically", "rename", "sync_directory", "remove_tree"])
def test_a_kill_during_a_reset_leaves_the_old_checkpoint_or_the_new_start(state: StateDirectory, method: str) -> None:
    checkpoint = Path(state.checkpoint)
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"abc"}')

    with pytest.raises(KeyboardInterrupt):
        StateDirectory(DyingDisk(method), state.path).reset(Start(123))

    assert state.query_id() == "abc" or state.start() == Start(123)


def test_the_status_of_a_pipeline_is_stored_and_a_damaged_one_is_named(state: StateDirectory) -> None:
    with state.locked():
        assert state.status() is None
        state.write_status(Status(5, None, 20_000, 204, BATCH))
        assert state.status() == Status(5, None, 20_000, 204, BATCH)
        Path(state.path, "status.json").write_text("{")

        with pytest.raises(StateUnusable, match=r"status\.json in .* is damaged"):
            state.status()


def test_a_line_about_a_micro_batch_has_rows_speed_lag_and_the_time_of_its_parts() -> None:
    assert batch_line(BATCH) == (
        "batch 12: 20,000 rows, 204 of them dead letters, 10,000 rows/s, lag 41,001; 2.00 s: read 1.50, sink 0.50"
    )


RUNS = {
    "never": (None, Checkpoint(None, None, {}), False, ["is not running", "has not run yet"]),
    "running": (Status(0), Checkpoint(None, 0, {}), True, ["is running", "1970-01-01 00:00:00Z: it goes on"]),
    "killed": (Status(0), Checkpoint(3, 4, {}), False, ["it was killed", "Micro-batch 4 was interrupted"]),
    "ended": (Status(0, 60_000), Checkpoint(3, 3, {}), False, ["it ended at 1970-01-01 00:01:00Z"]),
    "failed": (
        Status(0, 1, 0, 0, BATCH, "broken"),
        Checkpoint(3, 3, {}),
        False,
        ["it failed at", "Last error: broken"],
    ),
}


@pytest.mark.parametrize(("status", "checkpoint", "is_running", "expected"), RUNS.values(), ids=RUNS)
def test_the_status_says_how_the_last_run_of_a_pipeline_ended(
    status: Status | None, checkpoint: Checkpoint, is_running: bool, expected: list[str]
) -> None:
    spec = parse_spec(
        RealDisk(), "/p.yaml", "pipeline: p\nsource: {bootstrap: 'b:1', topics: t}\nsink: {parquet: out}\n"
    )

    text = "\n".join(status_lines(spec, status, checkpoint, is_running=is_running))

    assert [e for e in expected if e not in text] == []
    assert ("interrupted" in text) == (checkpoint.is_interrupted and not is_running)
