"""`python -m tests.mutants`: how many small changes of the sources do the tests notice?"""

import argparse
import gc
import importlib
import pkgutil
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.hunt import Hunt, Progress, SourcesChanged, sampled
from tests.mutants.importing import rooms_loaded
from tests.mutants.maps import DIRECTORY
from tests.mutants.mutations import ROOMS, Mutant, all_mutants
from tests.mutants.page import (
    PAGE,
    Score,
    equivalents,
    is_equivalent,
    percent,
    section,
    section_of,
    with_others,
    write_section,
)
from tests.mutants.results import KILLERS, Results

from klamm.runtime.signals import interrupted_by_stop_signals

PRELOADED = ("model", "wire", "config", "telemetry", "runtime")
"""Floors below the mutated rooms: no mutant changes what they import."""
LIBRARIES = ("pytest", "pytest_asyncio.plugin", "pytest_timeout", "hypothesis.strategies", "msgspec", "structlog")
LEAST_PERCENT = 98.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    reasons = equivalents()
    hunt = Hunt(
        () if options.known else options.killers, Results(options.out), options.until_killed, not options.unmapped
    )
    mutants = _with_verdicts(hunt) if options.known else _chosen(options)
    preload()
    try:
        with interrupted_by_stop_signals():
            run(hunt, [m for m in mutants if not is_equivalent(m, reasons)])
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on, from {options.out}")
        return 130
    except SourcesChanged as changed:
        print(changed)
        return 2
    finally:
        hunt.close()
    text = section(mutants, hunt.known, reasons)
    print(text)
    if options.record:
        write_section(with_others(text, section_of(PAGE.read_text())))
    score = Score(mutants, hunt.known, reasons)
    return int(percent(*score.by_any) < options.least)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.mutants", description="Which small changes do the tests notice?")
    parser.add_argument("--sample", type=int, default=300, help="how many mutants, the same number from each room")
    parser.add_argument("--seed", type=int, default=1, help="draws the sample")
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=ROOMS)
    parser.add_argument("--killers", nargs="+", choices=KILLERS, default=KILLERS, help="in this order")
    parser.add_argument("--until-killed", action="store_true", help="ask the next killer only about survivors")
    parser.add_argument("--unmapped", action="store_true", help="do not measure first which seeds run which lines")
    parser.add_argument("--only", nargs="+", metavar="ID", help="these mutants instead of a sample; or parts of ids")
    parser.add_argument("--out", type=Path, default=DIRECTORY / "verdicts.jsonl", help="verdicts; a later run goes on")
    parser.add_argument("--record", action="store_true", help=f"write the section of docs/{PAGE.name}")
    parser.add_argument("--known", action="store_true", help="ask nobody: report on all mutants that have verdicts")
    parser.add_argument("--least", type=float, default=LEAST_PERCENT, help="percent by any, below which it fails")
    return parser


def _chosen(options: argparse.Namespace) -> list[Mutant]:
    """Raises SystemExit where there is no such mutant."""
    mutants = all_mutants(tuple(options.rooms))
    if not options.only:
        return sampled(mutants, options.sample, options.seed)
    chosen = [m for m in mutants if any(part in m.id for part in options.only)]
    if not chosen:
        raise SystemExit(f"No mutant has one of {options.only} in its id: file:operator:function:number.")
    return chosen


def _with_verdicts(hunt: Hunt) -> list[Mutant]:
    return [mutant for mutant in all_mutants() if any(hunt.known(mutant, killer) for killer in KILLERS)]


def preload() -> None:
    """Import, once for all children, what no mutant can change."""
    for name in LIBRARIES:
        importlib.import_module(name)
    for floor in PRELOADED:
        package = importlib.import_module(f"klamm.{floor}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    assert not rooms_loaded(), rooms_loaded()
    gc.collect()
    gc.freeze()


def run(hunt: Hunt, mutants: Sequence[Mutant]) -> None:
    """Print a line for each new verdict."""
    places = {mutant.id: n for n, mutant in enumerate(mutants, start=1)}
    for progress in hunt.verdicts(mutants):
        if progress.is_new:
            print(f"[{places[progress.mutant.id]:>4}/{len(mutants)}] {line_of(progress)}", flush=True)


def line_of(progress: Progress) -> str:
    mutant, verdict, _ = progress
    changed = f", {verdict.changed} schedules changed" if verdict.changed and not verdict.is_kill else ""
    by = f": {verdict.by[:90]}" if verdict.by else ""
    now = time.strftime("%H:%M:%S")
    return f"{now} {mutant.id}: {verdict.killer} {verdict.verdict} in {verdict.cpu_s:.1f} s{changed}{by}"


if __name__ == "__main__":
    raise SystemExit(main())
