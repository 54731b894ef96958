"""The directory of a pipeline: its lock, where a reset begins, and its status."""

from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JError

from klamm.client.errors import Unreachable
from klamm.pipeline import check, run
from klamm.pipeline.check import check_topics
from klamm.pipeline.errors import PipelineFailed
from klamm.pipeline.position import Checkpoint
from klamm.pipeline.spec import parse_spec
from klamm.pipeline.state import BatchStatus, Start, StateDirectory, StateUnusable, Status
from klamm.pipeline.text import batch_line, status_lines
from klamm.runtime.disk import File, RealDisk
from klamm.spark.options import ReadOptions

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


def test_a_run_knows_the_last_micro_batch_that_was_planned_and_the_last_complete_one(state: StateDirectory) -> None:
    assert state.last_number("offsets") is None
    for kind, names in (("offsets", ("9", "10", ".10.crc", "11.tmp")), ("commits", ("9",))):
        Path(state.checkpoint, kind).mkdir(parents=True)
        for name in names:
            Path(state.checkpoint, kind, name).write_text("v1")

    assert (state.last_number("offsets"), state.last_number("commits")) == (10, 9)


class SyncingDisk(RealDisk):
    """Has the names of the files and directories that were synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        return Mock(wraps=file, sync=lambda: self.synced.append(Path(path).name))

    def sync_directory(self, path: str) -> None:
        self.synced.append(Path(path).name)


def test_the_offsets_of_a_micro_batch_are_durable_before_it_is_read(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = Path(state.checkpoint, "offsets")
    offsets.mkdir(parents=True)
    Path(state.checkpoint, "metadata").write_text('{"id":"abc"}')
    (offsets / "7").write_text("v1")
    (offsets / ".7.crc").write_text("crc")
    disk = SyncingDisk()
    text = f"pipeline: p\nsource: {{bootstrap: 'b:1', topics: t}}\nsink: {{topic: t2}}\nstate: {state.path}\n"

    def prepare(*_given: object) -> None:
        assert disk.synced == ["metadata", "7", ".7.crc", "offsets", "checkpoint", "orders.state"]
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "prepare", prepare)
    with pytest.raises(KeyboardInterrupt):
        run.PipelineRun(None, parse_spec(disk, "/p.yaml", text), disk)._write(None, 7)  # type: ignore[arg-type]
    (offsets / "7").unlink()
    with pytest.raises(StateUnusable, match=r"Cannot sync the checkpoint in .*orders.state: No such file"):
        run.PipelineRun(None, parse_spec(disk, "/p.yaml", text), disk)._write(None, 7)  # type: ignore[arg-type]


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


def test_a_check_without_brokers_names_the_line_of_their_addresses() -> None:
    options = "options: {kafka.default.api.timeout.ms: 1}"
    text = f"pipeline: p\nsource: {{bootstrap: '127.0.0.1:1', topics: t, {options}}}\nsink: {{delta: t}}\n"

    with pytest.raises(PipelineFailed) as caught:
        check_topics(parse_spec(RealDisk(), "/p.yaml", text))

    assert str(caught.value).startswith("p.yaml, line 2: source.bootstrap: ")
    assert str(caught.value).endswith(". Check that the brokers run, and correct their addresses.")


@pytest.mark.parametrize(("options", "tries_s"), [("", 0.01), (", options: {kafka.default.api.timeout.ms: 20}", 0.02)])
def test_a_check_asks_brokers_for_as_long_as_its_caller_waits_unless_the_file_sets_a_time(
    monkeypatch: pytest.MonkeyPatch, options: str, tries_s: float
) -> None:
    given = []

    def read_client(_world: object, reads: ReadOptions) -> AbstractContextManager[None]:
        given.append(reads.api_timeout_s)
        raise Unreachable("metadata", 0.01, OSError("no connection"))

    monkeypatch.setattr(check, "read_client", read_client)
    text = f"pipeline: p\nsource: {{bootstrap: '127.0.0.1:1', topics: t{options}}}\nsink: {{delta: t}}\n"
    with pytest.raises(PipelineFailed):
        check_topics(parse_spec(RealDisk(), "/p.yaml", text), 0.01)

    assert given == [tries_s]


def test_a_status_that_cannot_be_written_names_its_file_and_the_remedy(state: StateDirectory) -> None:
    disk = RealDisk()

    def fail(path: str, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    disk.write_atomically = fail  # type: ignore[method-assign]
    with pytest.raises(
        StateUnusable, match=r"Cannot write .*status\.json: No space left on device\. Correct the cause"
    ):
        StateDirectory(disk, state.path).write_status(Status(0))


def test_a_run_that_fails_on_a_full_disk_says_why_it_failed_and_what_could_not_be_written(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"pipeline: p\nsource: {{bootstrap: 'b:1', topics: t}}\nsink: {{topic: t2}}\nstate: {state.path}\n"
    disk = RealDisk()
    job = run.PipelineRun(None, parse_spec(disk, "/p.yaml", text), disk)  # type: ignore[arg-type]
    for name in ("check_topics", "check_rows"):
        monkeypatch.setattr(run, name, lambda *_given: None)

    def start() -> None:
        Path(state.path, "status.json").unlink()
        Path(state.path, "status.json").mkdir()  # so that it cannot be replaced
        raise Py4JError("An error occurred while calling o107.start.\n: java.io.IOException: No space left\n\tat x")

    monkeypatch.setattr(job, "_start", start)
    with pytest.raises(PipelineFailed) as caught:
        job.run(lambda batch: None)

    assert str(caught.value).startswith("The pipeline p failed: java.io.IOException: No space left. Cannot write ")
