"""Plays a script against one controller, and compares two plays."""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from tests.differential import recordings
from tests.differential.calls import as_script, generated_names, keep, read_calls
from tests.differential.nodes import StartNode
from tests.differential.normalize import BROKERS, VERSIONS
from tests.differential.recordings import GENERATED, Recording
from tests.differential.script import Script
from tests.differential.script_context import ScriptContext
from tests.differential.scripts import SCRIPTS
from tests.differential.shortcuts import without_shortcuts
from tests.differential.transcript import Difference, Steps

from klamm.embedded.zookeeper import ZooKeeperServer


async def play(script: Script, start_node: StartNode, server: ZooKeeperServer, chroot: str, directory: Path) -> Steps:
    """Play a script with one node under test; the steps it led to."""
    context = ScriptContext(server, chroot, directory, start_node, script.protocol, script.given)
    try:
        await script.play(context)
        await context.check_tree()
    finally:
        await context.close()
    return [step.as_data() for step in context.steps]


def script_of(name: str) -> Script:
    """The script of this name, handwritten or generated."""
    return SCRIPTS[name] if name in SCRIPTS else as_script(name, read_calls(name))


def all_names() -> list[str]:
    return [*SCRIPTS, *generated_names()]


def recorded(name: str) -> Steps:
    """The recorded steps of Apache Kafka."""
    return recordings.read(subject_of(name), name).steps


def subject_of(name: str) -> str:
    """The recording file that has this script."""
    return SCRIPTS[name].subject if name in SCRIPTS else GENERATED


def record(name: str, steps: Steps) -> None:
    """Store the steps as the recording, in memory; `recordings.save` writes it."""
    if name not in SCRIPTS:
        keep(name, read_calls(name), steps)
    else:
        recordings.keep(subject_of(name), name, Recording(steps))


_NEW: Final = " new"


def merges_requests(name: str) -> bool:
    """Whether our controller merges queued requests in this script, as in production.

    It does in generated ones. Scripts that somebody wrote are about single steps, too: there each request is sent. Nor
    may it merge where a broker holds answers back: what joins a waiting request is then sent in another step.
    """
    return name not in SCRIPTS and all(call.verb != "hold" for call in read_calls(name))


def differences(kafka: Steps, klamm: Steps, *, merged: bool = False) -> Iterator[Difference]:
    """Every difference between two plays; if requests are merged, only the last ones of each step count."""
    pairs = zip_longest(*without_shortcuts(kafka, klamm), fillvalue={})
    for number, (theirs, ours) in enumerate(pairs):
        if merged:
            theirs, ours = last_requests_only(theirs), last_requests_only(ours)
        expected, found = _flat(theirs), _flat(ours)
        for place in sorted(expected.keys() | found.keys()):
            if expected.get(place) != found.get(place):
                did = str(theirs.get("did", ours.get("did")))
                yield Difference(number, did, place, expected.get(place), found.get(place))


def last_requests_only(step: dict[str, Any]) -> dict[str, Any]:
    """The step with the last request of each kind for each partition on each broker, and the last list of brokers.

    Kafka sends every state in between; ours sends those that a broker was not too slow for.
    """
    if "requests" not in step:
        return step
    received = {broker: {s: _last(s, texts) for s, texts in each.items()} for broker, each in step["requests"].items()}
    return {**step, "requests": received}


def _last(subject: str, texts: list[str]) -> list[str]:
    """The last of the merged requests about each partition."""
    if subject == VERSIONS:
        return texts
    if subject == BROKERS:
        return texts[-1:]
    last = {text.partition(" ")[0]: text.replace(_NEW, "", 1) for text in texts}
    if any(_NEW in text for text in texts):
        last["LeaderAndIsr"] += _NEW  # of merged requests it is true where it was of any
    return sorted(last.values())


def _flat(value: Any, place: str = "") -> Mapping[str, Any]:
    """A nested value as a flat mapping from place to text."""
    if not isinstance(value, dict):
        return {place: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flat(inner, f"{place} {key}".strip())
    return flat
