"""`klamm explain TOPIC-PARTITION | TOPIC | broker N | controller | reassignment`."""

from collections.abc import Callable, Sequence

import msgspec

from klamm.cli.explaining import answers
from klamm.cli.explaining.answers import Answer
from klamm.cli.explaining.sources import Found, NoStory, Sources, read
from klamm.cli.speech import say
from klamm.model.ids import BrokerId, parse_topic_partition
from klamm.runtime.disk import Disk, RealDisk


def explain(words: Sequence[str], sources: Sources, as_json: bool = False, disk: Disk | None = None) -> int:
    """Print the answer; exit status 1 where nothing is known. Raises NoStory for what cannot be asked or read."""
    ask = subject(words)
    answer = ask(read(sources, disk or RealDisk()))
    if as_json:
        say(msgspec.json.encode({"subject": " ".join(words), "known": answer.is_known, "lines": answer.lines}).decode())
    else:
        for line in answer.lines:
            say(line)
    return 0 if answer.is_known else 1


def subject(words: Sequence[str]) -> Callable[[Found], Answer]:
    """Raises NoStory where the words name nothing that can be explained."""
    match list(words):
        case ["controller"]:
            return answers.controller
        case ["reassignment"]:
            return answers.reassignment
        case ["broker", number] if number.isdigit():
            return lambda found: answers.broker(found, BrokerId(int(number)))
        case [name] if name != "broker":
            return lambda found: _topic_or_partition(found, name)
    raise NoStory(
        f"{' '.join(words)!r} names nothing that can be explained: TOPIC-PARTITION, TOPIC, broker N, controller or "
        "reassignment"
    )


def _topic_or_partition(found: Found, name: str) -> Answer:
    """`orders-0` is a partition, unless a topic has that name and no topic `orders` has a partition 0."""
    try:
        wanted = parse_topic_partition(name)
    except ValueError:
        return answers.topic(found, name)
    answer = answers.partition(found, wanted)
    if not answer.is_known and (as_topic := answers.topic(found, name)).is_known:
        return as_topic
    return answer
