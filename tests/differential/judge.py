"""Play scripts before a controller and compare the plays, by `python -m tests.differential.judge` and

- nothing: ours against what Apache Kafka was recorded to do; `NAME...`: these scripts only;
- `--record [NAME...]`: play before Apache Kafka first, and record it anew;
- `--new`: with it, only what was never recorded;
- `--accept NAME...`: what differs now is on purpose; `wanted.py` has the reason;
- `--lives COUNT [--seed FIRST] [--steps STEPS]`: so many generated scripts before both; the first difference is made
  as short as can be and printed as a script;
- `--keep COUNT [--seed FIRST] [--steps STEPS]`: so many generated scripts before both; where they do the same, it is
  kept in `lives/`, and where they differ, told.
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

from tests.differential.generator import live, shorten
from tests.differential.ground import Ground, kind_of
from tests.differential.kafka_host import kafka_host
from tests.differential.life import Life
from tests.differential.lives import as_text, keep
from tests.differential.nodes import StartNode, apache_starter, start_klamm
from tests.differential.plays import (
    RECORDED,
    Difference,
    Steps,
    all_names,
    differences,
    play,
    record,
    recorded,
    script_of,
)
from tests.differential.script import Script
from tests.differential.scripts import SCRIPTS
from tests.differential.wanted import accept, unwanted
from tests.support import apache_kafka, zookeeper

from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.telemetry.logs import configure_logs

AT_ONCE = 4
KAFKAS_LOG = apache_kafka.CACHE / "judge.log"


class Court:
    """One ZooKeeper, on which several scripts are played at once, each in a chroot of its own."""

    def __init__(self, server: ZooKeeperServer, directory: Path, start_apache: StartNode | None) -> None:
        self._server = server
        self._directory = directory
        self._starts = {"apache": start_apache, "klamm": start_klamm}

    async def play(self, script: Script, who: str) -> Steps:
        start = self._starts[who]
        assert start is not None
        room = self._directory / who / script.name
        room.mkdir(parents=True)
        return await play(script, start, self._server, f"/{who}-{script.name}", room)


async def _judge(name: str, options: argparse.Namespace, court: Court) -> bool:
    if options.record:
        record(name, await court.play(script_of(name), "apache"))
    found = list(differences(recorded(name), await court.play(script_of(name), "klamm")))
    if options.accept:
        accept(name, found)
    return _tell(name, found)


def _tell(name: str, found: list[Difference]) -> bool:
    others = unwanted(name, found)
    on_purpose = len(found) - len(others)
    print(f"{name}: {len(others)} differences, {on_purpose} on purpose", *others, sep="\n  ", flush=True)
    return bool(others)


async def _each(judge: Callable[..., Awaitable[bool]], items: Iterable[object], *rest: object) -> int:
    """How many differ. Some are judged at once; one that fails does not keep the others from theirs."""
    turns = asyncio.Semaphore(AT_ONCE)

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


async def _run(options: argparse.Namespace, server: ZooKeeperServer, directory: Path, kafkas_log: IO[bytes]) -> int:
    async with AsyncExitStack() as stack:
        start_apache = None
        if options.record:
            start_apache = apache_starter(await stack.enter_async_context(kafka_host(kafkas_log)))
        return await _each(_judge, options.names, options, Court(server, directory, start_apache))


def _live(options: argparse.Namespace, server: ZooKeeperServer, directory: Path, kafkas_log: IO[bytes]) -> int:
    """The generator draws between verbs, outside of the loop in which they are carried out."""
    with asyncio.Runner() as runner:
        host = kafka_host(kafkas_log)
        start_apache = apache_starter(runner.run(host.__aenter__()))
        ground = Ground(runner, server, directory, [start_apache, start_klamm])
        differing = 0
        try:
            for seed in range(options.seed, options.seed + (options.keep or options.lives)):
                life = live(ground, seed, options.steps)
                print(
                    f"life {seed}: {len(life.steps)} steps, {len(life.found)} differences",
                    *life.found,
                    sep="\n  ",
                    flush=True,
                )
                if life.found and not options.keep:
                    _tell_shortest(ground, life)
                    return 1
                if options.keep and not life.found:
                    keep(f"life_{seed}", life.calls, life.steps)
                differing += bool(life.found)
        finally:
            runner.run(host.__aexit__(None, None, None))
    return min(1, differing)


def _tell_shortest(ground: Ground, life: Life) -> None:
    print("now the shortest script that still differs:", flush=True)
    kinds = set(map(kind_of, life.found))
    print(as_text("a_difference", shorten(life.calls, partial(ground.differs, kinds=kinds))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--accept", action="store_true")
    parser.add_argument("--lives", type=int, metavar="COUNT")
    parser.add_argument("--keep", type=int, metavar="COUNT")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*", default=all_names())
    options = parser.parse_args()
    if options.new:
        options.names = [name for name in options.names if name in SCRIPTS and not (RECORDED / f"{name}.json").exists()]
    if (options.record or options.lives or options.keep) and (why := apache_kafka.why_missing()):
        print(why, file=sys.stderr)
        return 1
    configure_logs("error")
    with tempfile.TemporaryDirectory() as directory:
        server = zookeeper.server(Path(directory) / "zookeeper")
        KAFKAS_LOG.parent.mkdir(parents=True, exist_ok=True)
        server.start()
        try:
            with open(KAFKAS_LOG, "wb") as log:
                if options.lives or options.keep:
                    return _live(options, server, Path(directory), log)
                return min(1, asyncio.run(_run(options, server, Path(directory), log)))
        finally:
            server.kill()


if __name__ == "__main__":
    sys.exit(main())
