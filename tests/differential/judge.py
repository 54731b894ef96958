"""Play scripts before a controller and compare the plays, by `python -m tests.differential.judge` and

- nothing: ours against what Apache Kafka was recorded to do; `NAME...`: these scripts only;
- `--record [NAME...]`: play before Apache Kafka first, and record it anew;
- `--accept NAME...`: what differs now is on purpose; `wanted.py` has the reason;
- `--random COUNT [--seed FIRST]`: so many random lives before both, nothing recorded.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.differential.nodes import start_apache, start_klamm
from tests.differential.plays import Difference, Steps, differences, play, record, recorded
from tests.differential.random_life import random_life
from tests.differential.script import Script
from tests.differential.scripts import SCRIPTS
from tests.differential.wanted import accept, unwanted
from tests.support import apache_kafka, zookeeper

from klamm.cli.zookeeper import ZooKeeperServer
from klamm.telemetry.logs import configure_logs

RANDOM_STEPS = 30


class Court:
    """One ZooKeeper, on which scripts are played one after the other."""

    def __init__(self, server: ZooKeeperServer, directory: Path) -> None:
        self._server = server
        self._directory = directory

    async def play(self, script: Script, who: str) -> Steps:
        room = self._directory / who / script.name
        room.mkdir(parents=True)
        start = start_apache if who == "apache" else start_klamm
        return await play(script, start, self._server, f"/{who}-{script.name}", room)


async def _judge(options: argparse.Namespace, court: Court) -> int:
    different = 0
    for name in options.names:
        if options.record:
            record(name, await court.play(SCRIPTS[name], "apache"))
        found = list(differences(recorded(name), await court.play(SCRIPTS[name], "klamm")))
        if options.accept:
            accept(name, found)
        different += _tell(name, found)
    print(f"{len(options.names)} scripts, {different} with differences")
    return different


async def _judge_random_lives(seeds: range, court: Court) -> int:
    different = 0
    for seed in seeds:
        script = random_life(seed, RANDOM_STEPS)
        theirs = await court.play(script, "apache")
        found = list(differences(theirs, await court.play(script, "klamm")))
        if _tell(script.name, found):
            different += 1
            print(*(f"    {number}. {step['did']}" for number, step in enumerate(theirs)), sep="\n", flush=True)
    print(f"{len(seeds)} random lives, {different} with differences")
    return different


def _tell(name: str, found: list[Difference]) -> bool:
    others = unwanted(name, found)
    on_purpose = len(found) - len(others)
    print(f"{name}: {len(others)} differences, {on_purpose} on purpose", *others, sep="\n  ", flush=True)
    return bool(others)


async def _run(options: argparse.Namespace, court: Court) -> int:
    if options.random:
        return await _judge_random_lives(range(options.seed, options.seed + options.random), court)
    return await _judge(options, court)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--accept", action="store_true")
    parser.add_argument("--random", type=int, metavar="COUNT")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*", default=list(SCRIPTS))
    options = parser.parse_args()
    if (options.record or options.random) and (why := apache_kafka.why_missing()):
        print(why, file=sys.stderr)
        return 1
    configure_logs("error")
    with tempfile.TemporaryDirectory() as directory:
        server = zookeeper.server(Path(directory) / "zookeeper")
        server.start()
        try:
            return min(1, asyncio.run(_run(options, Court(server, Path(directory)))))
        finally:
            server.kill()


if __name__ == "__main__":
    sys.exit(main())
