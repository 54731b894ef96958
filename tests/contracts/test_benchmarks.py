"""Benchmarks that need no other server run with the smallest sizes; the others run in `make bench`."""

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.control_plane import stage

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "last_figure"),
    [
        (("replication", "10"), "replicated"),
        (("simulation", "--seeds", "1", "--rounds", "1"), "0 broken"),
        (("coordinator_load", "--groups", "3", "--commits", "100"), "unload"),
        (("compaction", "--mib", "1", "--keys", "100"), "zstd"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_benchmark_with_the_smallest_sizes_prints_its_figures(arguments: tuple[str, ...], last_figure: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{arguments[0]}", *arguments[1:]]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)

    assert done.returncode == 0, done.stderr
    assert last_figure in done.stdout


async def test_a_controller_benchmark_that_waits_in_vain_ends_and_says_for_what(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stage, "PATIENCE_S", 0)
    monkeypatch.setattr(stage, "LOOK_S", 0)

    async def never() -> bool:
        return False

    with pytest.raises(RuntimeError, match="until broker 9 is elected"):
        await stage.poll_until(never, "broker 9 is elected")
