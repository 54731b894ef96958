"""Play scripts before a controller and compare the plays, by `python -m tests.differential.judge` and

- nothing: ours against what Apache Kafka was recorded to do; `NAME...`: these scripts only;
- `--record [NAME...]`: play before Apache Kafka first, and record it anew;
- `--new`: with it, only what was never recorded;
- `--accept NAME...`: what differs now is on purpose; `wanted.py` has the reason;
- `--random COUNT [--seed FIRST]`: so many random lives before both, nothing recorded.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import IO

from tests.differential.kafka_host import kafka_host
from tests.differential.nodes import StartNode, apache_starter, start_klamm
from tests.differential.plays import RECORDED, Difference, Steps, differences, play, record, recorded
from tests.differential.random_life import random_life
from tests.differential.script import Script
from tests.differential.scripts import SCRIPTS
from tests.differential.wanted import accept, unwanted
from tests.support import apache_kafka, zookeeper

from klamm.cli.zookeeper import ZooKeeperServer
from klamm.telemetry.logs import configure_logs

RANDOM_STEPS = 30
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
        record(name, await court.play(SCRIPTS[name], "apache"))
    found = list(differences(recorded(name), await court.play(SCRIPTS[name], "klamm")))
    if options.accept:
        accept(name, found)
    return _tell(name, found)


async def _judge_random_life(seed: int, court: Court) -> bool:
    script = random_life(seed, RANDOM_STEPS)
    theirs = await court.play(script, "apache")
    found = list(differences(theirs, await court.play(script, "klamm")))
    if has_differences := _tell(script.name, found):
        print(*(f"    {number}. {step['did']}" for number, step in enumerate(theirs)), sep="\n", flush=True)
    return has_differences


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
        if options.record or options.random:
            host = await stack.enter_async_context(kafka_host(kafkas_log))
            start_apache = apache_starter(host)
        court = Court(server, directory, start_apache)
        if options.random:
            seeds = range(options.seed, options.seed + options.random)
            return await _each(_judge_random_life, seeds, court)
        return await _each(_judge, options.names, options, court)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--accept", action="store_true")
    parser.add_argument("--random", type=int, metavar="COUNT")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*", default=list(SCRIPTS))
    options = parser.parse_args()
    if options.new:
        options.names = [name for name in options.names if not (RECORDED / f"{name}.json").exists()]
    if (options.record or options.random) and (why := apache_kafka.why_missing()):
        print(why, file=sys.stderr)
        return 1
    configure_logs("error")
    with tempfile.TemporaryDirectory() as directory:
        server = zookeeper.server(Path(directory) / "zookeeper")
        KAFKAS_LOG.parent.mkdir(parents=True, exist_ok=True)
        server.start()
        try:
            with open(KAFKAS_LOG, "wb") as log:
                return min(1, asyncio.run(_run(options, server, Path(directory), log)))
        finally:
            server.kill()


if __name__ == "__main__":
    sys.exit(main())
