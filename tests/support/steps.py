"""Run commands one after another, each with a log file, progress and its duration: `make prove` and `make bench`."""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

POLL_S = 0.5
PROGRESS_S = 60


class Step(NamedTuple):
    name: str
    command: tuple[str, ...]
    shows: str


def run_chosen(
    description: str | None,
    steps: Sequence[Step],
    directory: Path,
    arguments: Sequence[str] | None = None,
    prints_output: bool = False,
) -> int:
    """Run all steps, or those that `--only` names; the exit status, 1 if one failed.

    `prints_output`: print what each step printed, when it has ended.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", nargs="+", choices=[s.name for s in steps], help="run only these")
    options = parser.parse_args(arguments)
    chosen = [s for s in steps if not options.only or s.name in options.only]
    directory.mkdir(exist_ok=True)
    results = []
    for number, step in enumerate(chosen, start=1):
        path = directory / f"{step.name}.log"
        print(f"[{number:>2}/{len(chosen)}] {step.name}: {step.shows}", flush=True)
        status, seconds = run(step, path)
        print(f"        {in_minutes(seconds):>9}  {outcome(status, path)}", flush=True)
        if prints_output:
            print(path.read_text(errors="replace"), flush=True)
        results.append((step, status, seconds, path))
    print("\nstep                  duration  result")
    for step, status, seconds, path in results:
        print(f"{step.name:<20} {in_minutes(seconds):>9}  {outcome(status, path)}")
    return int(any(status for _, status, _, _ in results))


def run(step: Step, path: Path) -> tuple[int, float]:
    """Run a step, with its output in this file; returns the exit status and the duration in seconds."""
    begin = time.monotonic()
    next_report = begin + PROGRESS_S
    with path.open("w") as log, subprocess.Popen(step.command, stdout=log, stderr=subprocess.STDOUT) as process:
        while process.poll() is None:
            time.sleep(POLL_S)
            if time.monotonic() >= next_report:
                next_report += PROGRESS_S
                print(f"        {in_minutes(time.monotonic() - begin):>9}  {last_line(path)}", flush=True)
        return process.returncode, time.monotonic() - begin


def last_line(path: Path) -> str:
    """The last line of a step's output so far, cut to the width of a terminal."""
    lines = path.read_text(errors="replace").splitlines()
    return lines[-1][:90] if lines else ""


def in_minutes(seconds: float) -> str:
    """Minutes and seconds, as in `3:07 min`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02} min"


def outcome(status: int, path: Path) -> str:
    """What the exit status says, with the file that has the details."""
    return "passed" if status == 0 else f"FAILED (status {status}), see {path}"


def exit_with(main: Callable[[], int]) -> None:
    """Run this and exit with its status; with 130 after Ctrl-C."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
