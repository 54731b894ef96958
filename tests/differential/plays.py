"""One script played before one controller, and where two plays are not the same."""

import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from tests.differential.lives import as_script, keep, kept_lives, read_life
from tests.differential.nodes import StartNode
from tests.differential.script import Script
from tests.differential.scripts import SCRIPTS
from tests.differential.shortcuts import without_shortcuts
from tests.differential.stage import Stage

from klamm.embedded.zookeeper import ZooKeeperServer

RECORDED = Path(__file__).parent / "recorded"
Steps = list[dict[str, Any]]


async def play(script: Script, start_node: StartNode, server: ZooKeeperServer, chroot: str, directory: Path) -> Steps:
    stage = Stage(server, chroot, directory, start_node, script.protocol, script.given)
    try:
        await script.play(stage)
        await stage.check_tree()
    finally:
        await stage.close()
    return [step.as_data() for step in stage.steps]


def script_of(name: str) -> Script:
    """Written by hand, or a life that was kept."""
    return SCRIPTS[name] if name in SCRIPTS else as_script(name, read_life(name)[0])


def all_names() -> list[str]:
    return [*SCRIPTS, *kept_lives()]


def recorded(name: str) -> Steps:
    if name not in SCRIPTS:
        return read_life(name)[1]
    steps: Steps = json.loads((RECORDED / f"{name}.json").read_text())
    return steps


def record(name: str, steps: Steps) -> None:
    if name not in SCRIPTS:
        keep(name, read_life(name)[0], steps)
        return
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
    pairs = zip_longest(*without_shortcuts(kafka, klamm), fillvalue={})
    for number, (theirs, ours) in enumerate(pairs):
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
