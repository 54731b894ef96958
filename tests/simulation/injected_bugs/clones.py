"""Bugs injected into fresh clones, which `make sim` has to find and make small; a command of its own.

Each is a change of one line of production code. Found means: within the time `make sim` breaks off at a seed, names the
invariant, and prints a test of at most `MAX_ACTIONS` actions.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
SECONDS = 60
MAX_ACTIONS = 20
_SHRUNK = re.compile(r"# (\d+) actions shrunk to (\d+) in (\d+) runs")
_BROKEN = re.compile(r"^seed (\d+): (.*)$", re.MULTILINE)


class InjectedBug(NamedTuple):
    file: str
    right: str
    """Stands there once."""
    wrong: str


INJECTED_BUGS = {
    "leader epochs do not increase": InjectedBug(
        "src/klamm/model/leader_and_isr.py", "leader_epoch + 1, isr,", "leader_epoch, isr,"
    ),
    "writes are not bound to the controller's epoch": InjectedBug(
        "src/klamm/zk/fenced.py", "Check(CONTROLLER_EPOCH, epoch_version)", "Check(CONTROLLER_EPOCH, -1)"
    ),
    "the watch on topics is not set": InjectedBug(
        "src/klamm/zk/store.py", "children(znodes.TOPICS, watch=watch)", "children(znodes.TOPICS, watch=False)"
    ),
    "bounced brokers are not noticed": InjectedBug(
        "src/klamm/controller/decisions/changes.py", "current[b].epoch > known[b].epoch", "False"
    ),
    "the last member leaves the ISR": InjectedBug(
        "src/klamm/controller/decisions/plans.py", "now.isr if len(now.isr) == 1 else shared_ids(", "shared_ids("
    ),
}


class Found(NamedTuple):
    seed: int
    violation: str
    actions: int
    """In the test that was printed."""
    output: str


def inject(tree: Path, bug: InjectedBug) -> None:
    path = tree / bug.file
    source = path.read_text()
    assert source.count(bug.right) == 1, f"{bug.right!r} does not stand once in {bug.file}"
    path.write_text(source.replace(bug.right, bug.wrong))


def search(tree: Path, seconds: float, cores: int | None = None) -> Found | None:
    """Run `make sim` on this source tree; return the violation it found, or None."""
    command = [sys.executable, "-m", "klamm.sim", "--seconds", str(seconds)]
    ran = subprocess.run(
        [*command, "--cores", str(cores)] if cores else command,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        cwd=tree,
        capture_output=True,
        text=True,
    )
    broken, shrunk = _BROKEN.search(ran.stdout), _SHRUNK.search(ran.stdout)
    if ran.returncode != 1 or broken is None or shrunk is None:
        return None
    return Found(int(broken[1]), broken[2], int(shrunk[2]), ran.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description="Inject bugs into fresh clones, and have them found.")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--bug", choices=tuple(INJECTED_BUGS), help="this one alone, and show all that is printed")
    chosen = parser.parse_args()
    missed = 0
    for name in [chosen.bug] if chosen.bug else INJECTED_BUGS:
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "klamm"
            subprocess.run(["git", "clone", "-q", str(ROOT), str(tree)], check=True)
            inject(tree, INJECTED_BUGS[name])
            began = time.monotonic()
            found = search(tree, chosen.seconds)
        took_s = time.monotonic() - began
        missed += found is None or found.actions > MAX_ACTIONS
        told = f"seed {found.seed}, {found.actions} actions: {found.violation}" if found else "NOT FOUND"
        print(f"{name}, {took_s:.0f} s: {told}", flush=True)
        if chosen.bug and found:
            print(found.output)
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
