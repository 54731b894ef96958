"""Play scripts before a controller and compare the plays, by `python -m tests.differential.judge` and

- nothing: ours against what Apache Kafka was recorded to do; `NAME...`: these scripts only;
- `--record [NAME...]`: play before Apache Kafka first, and record it anew;
- `--new`: with it, only what was never recorded;
- `--show NAME...`: print what Apache Kafka was recorded to do, and the calls where it was generated; plays nothing;
- `--accept NAME...`: what differs now is on purpose; `expected_differences.py` has the reason;
- `--generate COUNT [--seed FIRST] [--steps STEPS]`: so many generated scripts before both; the first difference is made
  as short as can be and printed as a script;
- `--keep COUNT [--seed FIRST] [--steps STEPS]`: so many generated scripts before both; where they do the same, it is
  kept in `recorded/generated.xz`, and where they differ, printed.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import IO

from tests.differential import recordings
from tests.differential.arena import Arena, kind_of
from tests.differential.calls import as_text, keep, read_calls
from tests.differential.comparison import (
    all_names,
    differences,
    merges_requests,
    play,
    record,
    recorded,
    script_of,
    subject_of,
)
from tests.differential.expected_differences import accept, unexpected
from tests.differential.generator import generate, shorten
from tests.differential.kafka_host import kafka_host
from tests.differential.nodes import StartNode, apache_starter, start_klamm, start_klamm_unmerged
from tests.differential.recordings import GENERATED
from tests.differential.scenario import Scenario
from tests.differential.script import Script
from tests.differential.scripts import SCRIPTS
from tests.differential.transcript import Difference, Steps, steps_to_lines
from tests.support import apache_kafka, zookeeper

from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.telemetry.logs import configure_logs

PARALLEL_SCRIPTS = 4
KAFKA_LOG = apache_kafka.CACHE / "judge.log"


class ScriptRunner:
    """One ZooKeeper, on which several scripts are played at once, each in a chroot of its own."""

    def __init__(self, server: ZooKeeperServer, directory: Path, start_apache: StartNode | None) -> None:
        self._server = server
        self._directory = directory
        self._starts = {"apache": start_apache, "klamm": start_klamm, "klamm-unmerged": start_klamm_unmerged}

    async def play(self, script: Script, who: str) -> Steps:
        """Play a script with klamm's or Apache Kafka's controller; return the steps."""
        start = self._starts[who]
        assert start is not None
        directory = self._directory / who / script.name
        directory.mkdir(parents=True)
        return await play(script, start, self._server, f"/{who}-{script.name}", directory)


async def _judge(name: str, options: argparse.Namespace, runner: ScriptRunner) -> bool:
    """Compare one script; whether it has no unexpected difference."""
    if options.record:
        record(name, await runner.play(script_of(name), "apache"))
        recordings.save(subject_of(name))
    merged = merges_requests(name)
    steps = await runner.play(script_of(name), "klamm" if merged else "klamm-unmerged")
    differing_places = list(differences(recorded(name), steps, merged=merged))
    if options.accept:
        accept(name, differing_places)
    return _print_verdict(name, differing_places)


def _print_verdict(name: str, differing_places: list[Difference]) -> bool:
    """Print the differences; whether there are none."""
    others = unexpected(name, differing_places)
    on_purpose = len(differing_places) - len(others)
    print(f"{name}: {len(others)} differences, {on_purpose} on purpose", *others, sep="\n  ", flush=True)
    return bool(others)


async def _judge_all(judge: Callable[..., Awaitable[bool]], items: Iterable[object], *rest: object) -> int:
    """Judge all items, several at once; the number of items that differ or fail."""
    turns = asyncio.Semaphore(PARALLEL_SCRIPTS)

    async def judge_in_turn(item: object) -> bool:
        async with turns:
            try:
                return await judge(item, *rest)
            except Exception as error:
                print(f"{item}: not played to its end: {error!r}", flush=True)
                return True

    verdicts = await asyncio.gather(*map(judge_in_turn, items))
    print(f"{len(verdicts)} played, {sum(verdicts)} with differences")
    return sum(verdicts)


async def _run(options: argparse.Namespace, server: ZooKeeperServer, directory: Path, kafka_log: IO[bytes]) -> int:
    """Compare the named scripts, recording Apache Kafka first if asked; return the number of failures."""
    async with AsyncExitStack() as stack:
        start_apache = None
        if options.record:
            start_apache = apache_starter(await stack.enter_async_context(kafka_host(kafka_log)))
        runner = ScriptRunner(server, directory, start_apache)
        groups = [[name for name in options.names if merges_requests(name) is merged] for merged in (False, True)]
        return sum([await _judge_all(_judge, names, options, runner) for names in groups if names])


def _generate(options: argparse.Namespace, server: ZooKeeperServer, directory: Path, kafka_log: IO[bytes]) -> int:
    """The generator draws between verbs, outside of the loop in which they are carried out."""
    with asyncio.Runner() as runner:
        host = kafka_host(kafka_log)
        start_apache = apache_starter(runner.run(host.__aenter__()))
        arena = Arena(runner, server, directory, [start_apache, start_klamm])
        differing = 0
        try:
            for seed in range(options.seed, options.seed + (options.keep or options.generate)):
                scenario = generate(arena, seed, options.steps)
                print(
                    f"seed {seed}: {len(scenario.steps)} steps, {len(scenario.differences)} differences",
                    *scenario.differences,
                    sep="\n  ",
                    flush=True,
                )
                if scenario.differences and not options.keep:
                    _print_shortest(arena, scenario)
                    return 1
                if options.keep and not scenario.differences:
                    keep(f"generated_{seed}", scenario.calls, scenario.steps)
                    recordings.save(GENERATED)
                differing += bool(scenario.differences)
        finally:
            runner.run(host.__aexit__(None, None, None))
    return min(1, differing)


def _print_shortest(arena: Arena, scenario: Scenario) -> None:
    """Shorten the generated script while it still differs, and print it."""
    print("now the shortest script that still differs:", flush=True)
    kinds = set(map(kind_of, scenario.differences))
    print(as_text("a_difference", shorten(scenario.calls, partial(arena.differs, kinds=kinds))))


def _recorded_text(name: str) -> str:
    """The recording of a script, as text."""
    calls = "" if name in SCRIPTS else as_text(name, read_calls(name))
    return "\n".join([f"## {name}\n{calls}", *steps_to_lines(recorded(name)), ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--accept", action="store_true")
    parser.add_argument("--generate", type=int, metavar="COUNT")
    parser.add_argument("--keep", type=int, metavar="COUNT")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*", default=all_names())
    options = parser.parse_args()
    if options.new:
        options.names = [name for name in options.names if not recordings.is_recorded(subject_of(name), name)]
    if options.show:
        print(*map(_recorded_text, options.names), sep="\n")
        return 0
    if (options.record or options.generate or options.keep) and (why := apache_kafka.why_missing()):
        print(why, file=sys.stderr)
        return 1
    configure_logs("error")
    with tempfile.TemporaryDirectory() as directory:
        server = zookeeper.server(Path(directory) / "zookeeper")
        KAFKA_LOG.parent.mkdir(parents=True, exist_ok=True)
        server.start()
        try:
            with open(KAFKA_LOG, "wb") as log:
                if options.generate or options.keep:
                    return _generate(options, server, Path(directory), log)
                return min(1, asyncio.run(_run(options, server, Path(directory), log)))
        finally:
            server.kill()


if __name__ == "__main__":
    sys.exit(main())
