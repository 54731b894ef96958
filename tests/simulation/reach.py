"""`python -m tests.simulation.reach`: which branches of `klamm/controller/` the simulation alone takes.

SCHEDULES seeds with all that controllers write down, and each scripted operation without faults, in every generation of
the protocol, with each write refused, and broken in `--steps` of the other ways of
`make fault-at-every-step`; nothing but what
production does. Fails below `--least` percent of the branches, and names every line and branch that was not taken.
What nobody can reach that way stands in `ELSEWHERE` with its reason.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coverage import Coverage

from klamm.runtime.cores import core_count

LEAST_PERCENT = 95.0
STEPS = 0.05
PACKAGE = "klamm.controller"
ELSEWHERE = {
    "settings.py": "reads text of configuration files, which have their own tests; simulated nodes have good ones",
}
"""Parts of modules that no schedule can reach, and why."""
GENERATIONS = ("2.8-IV1", "2.7-IV2", "2.6-IV0", "2.4-IV0", "2.2-IV0", "1.0-IV0", "0.10.2-IV0", "0.9.0", "0.8.2")
"""Protocols with other versions of the controller's requests than the newest one has."""
SOME_GENERATIONS = ("2.2-IV0", "0.8.2")


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, and return the exit code."""
    parser = argparse.ArgumentParser(prog="tests.simulation.reach", description="Branch coverage by simulation alone.")
    parser.add_argument("--schedules", type=int, default=300, help="how many seeds")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--steps", type=float, default=STEPS, help="which part of the steps' runs")
    parser.add_argument("--least", type=float, default=LEAST_PERCENT, help="percent of branches below which it fails")
    parser.add_argument("--part", type=int, nargs=2, metavar=("N", "OF"), help="one process's part of it")
    parser.add_argument("--data", help="the file that a part is written to")
    chosen = parser.parse_args(arguments)
    if chosen.part:
        number, parts = chosen.part
        return _measure(chosen.first, chosen.schedules, chosen.steps, number, parts, chosen.data)
    with tempfile.TemporaryDirectory() as folder:
        return _in_parts(chosen.first, chosen.schedules, chosen.steps, chosen.least, Path(folder))


def _coverage(data_file: str) -> Coverage:
    """A coverage measurement of the controller that writes this data file."""
    return Coverage(data_file=data_file, branch=True, source_pkgs=[PACKAGE], config_file=False)


def _measure(first: int, schedules: int, steps: float, number: int, parts: int, data_file: str) -> int:
    """Measure one part of the runs in this process, including the imports."""
    coverage = _coverage(data_file)
    coverage.start()
    from klamm.sim.campaign import silence_logging
    from klamm.sim.cluster import run_schedule, run_script
    from klamm.sim.faults.step_faults import ONLY_FOR_WRITES
    from klamm.sim.scripts.operations import OPERATIONS
    from klamm.sim.steps import run_step, runs_of, sampled

    silence_logging()
    for seed in range(first + number, first + schedules, parts):
        if wrong := run_schedule(seed, with_story=True).violation:
            print(f"seed {seed}: {wrong}", flush=True)
    for name, script in list(_runs_without_faults())[number::parts]:
        if wrong := run_script(script, with_story=True).violation:
            print(f"{name}: {wrong}", flush=True)
    runs = [run for name in list(OPERATIONS)[number::parts] for run in runs_of(name)]
    chosen = dict.fromkeys([*(run for run in runs if run.fault in ONLY_FOR_WRITES), *sampled(runs, steps)])
    for run in chosen:
        if wrong := run_step(run).violation:
            print(f"{run}: {wrong}", flush=True)
    coverage.stop()
    coverage.save()
    return 0


def _runs_without_faults() -> Iterator[tuple[str, Any]]:
    """Each operation without faults, in the newest protocol and in every older protocol generation: (name, script)."""
    from klamm.sim.scripts.operations import OPERATIONS, OPERATIONS_WITHOUT_FAULTS, script_of

    older = dict.fromkeys(OPERATIONS, GENERATIONS) | dict.fromkeys(OPERATIONS_WITHOUT_FAULTS, SOME_GENERATIONS)
    for name, protocols in older.items():
        newest = script_of(name)
        for protocol in (newest.options.protocol, *protocols):
            yield f"{name}, {protocol}", newest._replace(options=replace(newest.options, protocol=protocol))


def _in_parts(first: int, schedules: int, steps: float, least: float, folder: Path) -> int:
    """Measure in several processes and combine their coverage; the exit code."""
    parts = core_count()
    print(f"{schedules} schedules from seed {first} on, each operation, {steps:.0%} of its faults, on {parts} cores")
    files = [str(folder / f"part-{n}") for n in range(parts)]
    asked = [sys.executable, "-m", "tests.simulation.reach", "--first", str(first), "--schedules", str(schedules)]
    asked += ["--steps", str(steps)]
    begun = [subprocess.Popen([*asked, "--part", str(n), str(parts), "--data", file]) for n, file in enumerate(files)]
    ended = [process.wait() for process in begun]
    if any(ended):
        return 1
    coverage = _coverage(str(folder / "all"))
    coverage.combine(files)
    coverage.save()
    coverage.report(show_missing=True, skip_covered=True)
    coverage.json_report(outfile=str(folder / "totals"))
    totals = json.loads((folder / "totals").read_text())["totals"]
    percent = 100 * totals["covered_branches"] / totals["num_branches"]
    print(f"{totals['covered_lines']} of {totals['num_statements']} lines")
    for name, why in ELSEWHERE.items():
        print(f"not counted on: {name}: {why}")
    of = f"{totals['covered_branches']} of {totals['num_branches']} branches of {PACKAGE}"
    print(f"{of}: {percent:.1f} %, {least:g} % are wanted")
    return int(percent < least)


if __name__ == "__main__":
    raise SystemExit(main())
