"""Play a script before a controller, and compare two plays.

python -m tests.differential.judge                    compare ours with what Apache Kafka was recorded to do
python -m tests.differential.judge --record [NAME...] play before Apache Kafka first, and record it anew
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from tests.differential.nodes import StartNode, start_apache, start_klamm
from tests.differential.scripts import SCRIPTS, Script
from tests.differential.stage import Stage
from tests.differential.wanted import unwanted
from tests.support import zookeeper

from klamm.cli.zookeeper import ZooKeeperServer
from klamm.telemetry.logs import configure_logs

RECORDED = Path(__file__).parent / "recorded"
Steps = list[dict[str, Any]]


async def play(script: Script, start_node: StartNode, server: ZooKeeperServer, chroot: str, directory: Path) -> Steps:
    stage = Stage(server, chroot, directory, start_node, script.protocol)
    try:
        await script.play(stage)
    finally:
        await stage.close()
    return [step.as_data() for step in stage.steps]


def recorded(name: str) -> Steps:
    steps: Steps = json.loads((RECORDED / f"{name}.json").read_text())
    return steps


def record(name: str, steps: Steps) -> None:
    (RECORDED / f"{name}.json").write_text(json.dumps(steps, indent=1, ensure_ascii=False) + "\n")


class Difference(NamedTuple):
    step: int
    did: str
    place: str
    """Where in the step, as `requests 2 a-0` or `answer a-0`."""
    kafka: Any
    klamm: Any

    def __str__(self) -> str:
        return f"step {self.step}, {self.did}: {self.place}\n    Kafka: {self.kafka}\n    klamm: {self.klamm}"


def differences(kafka: Steps, klamm: Steps) -> Iterator[Difference]:
    """Every place where the two plays are not the same."""
    for number, (theirs, ours) in enumerate(zip_longest(kafka, klamm, fillvalue={})):
        expected, found = _flat(theirs), _flat(ours)
        for place in sorted(expected.keys() | found.keys()):
            if expected.get(place) != found.get(place):
                did = theirs.get("did", ours.get("did"))
                yield Difference(number, did, place, expected.get(place), found.get(place))


def _flat(value: Any, place: str = "") -> Mapping[str, Any]:
    if not isinstance(value, dict):
        return {place: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flat(inner, f"{place} {key}".strip())
    return flat


async def _judge(names: list[str], anew: bool, server: ZooKeeperServer, directory: Path) -> int:
    different = 0
    for name in names:
        if anew:
            record(name, await play(SCRIPTS[name], start_apache, server, f"/apache-{name}", _room(directory, name)))
        ours = await play(SCRIPTS[name], start_klamm, server, f"/klamm-{name}", _room(directory, name))
        found = list(differences(recorded(name), ours))
        others = unwanted(name, found)
        different += bool(others)
        print(
            f"{name}: {len(others)} differences, {len(found) - len(others)} on purpose", *others, sep="\n  ", flush=True
        )
    print(f"{len(names)} scripts, {different} with differences")
    return different


def _room(directory: Path, name: str) -> Path:
    room = directory / name
    room.mkdir(exist_ok=True)
    return room


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", action="store_true")
    parser.add_argument("names", nargs="*", default=list(SCRIPTS))
    options = parser.parse_args()
    configure_logs("error")
    with tempfile.TemporaryDirectory() as directory:
        server = zookeeper.server(Path(directory) / "zookeeper")
        server.start()
        try:
            return min(1, asyncio.run(_judge(options.names, options.record, server, Path(directory))))
        finally:
            server.kill()


if __name__ == "__main__":
    sys.exit(main())
