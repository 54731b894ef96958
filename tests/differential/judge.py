"""Play a script before a controller, and compare two plays.

python -m tests.differential.judge                    compare ours with what Apache Kafka was recorded to do
python -m tests.differential.judge --record [NAME...] play before Apache Kafka first, and record it anew
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.differential.nodes import start_apache, start_klamm
from tests.differential.plays import differences, play, record, recorded
from tests.differential.scripts import SCRIPTS
from tests.differential.wanted import accept, unwanted
from tests.support import zookeeper

from klamm.cli.zookeeper import ZooKeeperServer
from klamm.telemetry.logs import configure_logs


async def _judge(options: argparse.Namespace, server: ZooKeeperServer, directory: Path) -> int:
    different = 0
    for name in options.names:
        if options.record:
            record(name, await play(SCRIPTS[name], start_apache, server, f"/apache-{name}", _room(directory, name)))
        ours = await play(SCRIPTS[name], start_klamm, server, f"/klamm-{name}", _room(directory, name))
        found = list(differences(recorded(name), ours))
        if options.accept:
            accept(name, found)
        others = unwanted(name, found)
        different += bool(others)
        print(
            f"{name}: {len(others)} differences, {len(found) - len(others)} on purpose", *others, sep="\n  ", flush=True
        )
    print(f"{len(options.names)} scripts, {different} with differences")
    return different


def _room(directory: Path, name: str) -> Path:
    room = directory / name
    room.mkdir(exist_ok=True)
    return room


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--accept", action="store_true")
    parser.add_argument("names", nargs="*", default=list(SCRIPTS))
    options = parser.parse_args()
    configure_logs("error")
    with tempfile.TemporaryDirectory() as directory:
        server = zookeeper.server(Path(directory) / "zookeeper")
        server.start()
        try:
            return min(1, asyncio.run(_judge(options, server, Path(directory))))
        finally:
            server.kill()


if __name__ == "__main__":
    sys.exit(main())
