"""`klamm explain TOPIC-PARTITION | TOPIC | broker N | controller | reassignment`."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from klamm.cli.output import say
from klamm.explain import answers
from klamm.explain.answers import Answer
from klamm.explain.sources import Found, Sources, is_no_decision, read
from klamm.model.errors import UsageError
from klamm.model.ids import BrokerId, parse_topic_partition
from klamm.runtime.disk import Disk, RealDisk
from klamm.telemetry.journal_reader import Wanted, about

MOST_EVENTS = 12
"""Of a partition's story, unless all of it is asked for."""


class Subject(NamedTuple):
    ask: Callable[[Found], Answer]
    wanted: Wanted
    """The journal lines that the answer needs."""


def explain(
    words: Sequence[str], sources: Sources, as_json: bool = False, disk: Disk | None = None, *, everything: bool = False
) -> int:
    """Print the answer; exit status 1 where nothing is known. Raises NoStory for what cannot be asked or read."""
    about_what = subject(words, None if everything else MOST_EVENTS)
    found = read(sources, disk or RealDisk(), about_what.wanted)
    answer = about_what.ask(found)
    lines = [*answer.lines, *answers.silence(found)]
    if as_json:
        say(msgspec.json.encode({"subject": " ".join(words), "known": answer.is_known, "lines": lines}).decode())
    else:
        for line in lines:
            say(line)
    missed = found.silence is not None and sources.zookeeper is not None
    return 0 if answer.is_known and not missed else 1


def subject(words: Sequence[str], most_events: int | None = None) -> Subject:
    """Raises UsageError where the words name nothing that can be explained."""
    match list(words):
        case ["controller"]:
            return Subject(answers.controller, is_no_decision)
        case ["reassignment"]:
            return Subject(answers.reassignment, is_no_decision)
        case ["broker", number] if number.isdigit():
            return Subject(lambda found: answers.broker(found, BrokerId(int(number))), is_no_decision)
        case [name] if name != "broker":
            topics = {name, name.rpartition("-")[0] or name}
            return Subject(lambda found: _topic_or_partition(found, name, most_events), about(*sorted(topics)))
    raise UsageError(
        f"{' '.join(words)!r} names nothing that can be explained: TOPIC-PARTITION, TOPIC, broker N, controller or "
        "reassignment"
    )


def _topic_or_partition(found: Found, name: str, most_events: int | None) -> Answer:
    """`orders-0` is a partition, unless a topic has that name and no topic `orders` has a partition 0."""
    try:
        wanted = parse_topic_partition(name)
    except ValueError:
        return answers.topic(found, name)
    answer = answers.partition(found, wanted, most_events)
    if not answer.is_known and (as_topic := answers.topic(found, name)).is_known:
        return as_topic
    return answer
