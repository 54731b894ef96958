"""One script played before one controller, and where two plays are not the same."""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.differential import recordings
from tests.differential.calls import as_script, generated_names, keep, read_calls
from tests.differential.nodes import StartNode
from tests.differential.recordings import GENERATED, Recording
from tests.differential.script import Script
from tests.differential.script_context import ScriptContext
from tests.differential.scripts import SCRIPTS
from tests.differential.shortcuts import without_shortcuts
from tests.differential.transcript import Difference, Steps

from klamm.cli.zookeeper import ZooKeeperServer


async def play(script: Script, start_node: StartNode, server: ZooKeeperServer, chroot: str, directory: Path) -> Steps:
    context = ScriptContext(server, chroot, directory, start_node, script.protocol, script.given)
    try:
        await script.play(context)
        await context.check_tree()
    finally:
        await context.close()
    return [step.as_data() for step in context.steps]


def script_of(name: str) -> Script:
    """Written by hand, or generated and kept."""
    return SCRIPTS[name] if name in SCRIPTS else as_script(name, read_calls(name))


def all_names() -> list[str]:
    return [*SCRIPTS, *generated_names()]


def recorded(name: str) -> Steps:
    return recordings.read(subject_of(name), name).steps


def subject_of(name: str) -> str:
    return SCRIPTS[name].subject if name in SCRIPTS else GENERATED


def record(name: str, steps: Steps) -> None:
    """In memory: `recordings.save` writes it."""
    if name not in SCRIPTS:
        keep(name, read_calls(name), steps)
    else:
        recordings.keep(subject_of(name), name, Recording(steps))


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
