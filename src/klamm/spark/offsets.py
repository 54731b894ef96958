"""The partitions, starts and ends that the options select, before any broker is asked.

Source: KafkaSourceProvider.scala (`getKafkaOffsetRangeLimit`, `validateBatchOptions`), JsonUtils.scala.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from klamm.client.offsets import EARLIEST, LATEST
from klamm.model.ids import TopicPartition
from klamm.spark.errors import BadOption
from klamm.spark.option_parsers import MAX_INT, MAX_LONG

WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_EMPTY: Final = {"starting": LATEST, "ending": EARLIEST}
"""The bound with which a batch read has no rows."""


class Subscription(NamedTuple):
    """Exactly one of the three is not None. `pattern` need only be found in a topic's name, as Spark has it."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] | None = None

    def includes(self, partition: TopicPartition) -> bool:
        """Whether the read includes this partition, if it exists and is not internal."""
        if self.pattern is not None:
            return re.search(self.pattern, partition.topic) is not None
        return partition.topic in (self.topics or ()) or partition in (self.partitions or ())

    def includes_topic(self, topic: str) -> bool:
        """Whether the read includes a partition of this topic, if it exists and is not internal."""
        return self.includes(TopicPartition(topic, 0)) or any(p.topic == topic for p in self.partitions or ())


class Bound(NamedTuple):
    """Where each partition's range begins or ends: one value for all, or one for each.

    A value is an offset (EARLIEST, LATEST among them), or where `by_time` milliseconds since 1970.
    `option` is the name of the option that said it.
    """

    option: str
    everywhere: int | None = None
    each: Mapping[TopicPartition, int] | None = None
    by_time: bool = False

    def of(self, partition: TopicPartition) -> int:
        """The bound of this partition: an offset, a time, or a special value for earliest or latest."""
        if self.each is not None:
            return self.each[partition]
        assert self.everywhere is not None
        return self.everywhere


def subscription(value: Mapping[str, Any]) -> Subscription:
    """The subscription; raises BadOption unless exactly one of subscribe, subscribePattern and assign is set."""
    names = ("subscribe", "subscribePattern", "assign")
    given = [name for name in names if value[name] is not None]
    if len(given) != 1:
        what = f"{' and '.join(given)} are set" if given else "none is set"
        raise BadOption(f"set exactly one of the options {', '.join(names)}: {what}")
    return Subscription(*(value[name] for name in names))


def bound(side: str, value: Mapping[str, Any], streaming: bool = False) -> Bound:
    """The starting or ending bound: one time for all, else times per partition, else offsets. Raises BadOption."""
    one_time, times, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if value[one_time] is not None:
        return Bound(one_time, everywhere=_parse_time(one_time, value[one_time]), by_time=True)
    if value[times] is not None:
        return Bound(times, each=_checked_times(times, parse_offsets(times, value[times])), by_time=True)
    text = value[offsets] or ("latest" if streaming else "earliest")
    return _parse_offsets_option(offsets, text, None if streaming else _EMPTY[side])


def check_order(start: Bound, end: Bound) -> None:
    """Raise BadOption where the options themselves say that a range ends before it begins."""
    if start.by_time != end.by_time:
        return
    for p in (*(start.each or ()), *(end.each or ())) or (None,):
        first, last = _value_for(start, p), _value_for(end, p)
        if first is not None and last is not None and 0 <= last < first:
            of = "" if p is None else f" for {p}"
            raise BadOption(
                f"options {start.option} and {end.option} contradict each other: the read would begin at {first} and "
                f"end before {last}{of}; correct one of them"
            )


def _value_for(given: Bound, partition: TopicPartition | None) -> int | None:
    """The bound of a partition; None where the option lacks it."""
    if given.each is None:
        return given.everywhere
    return None if partition is None else given.each.get(partition)


def _parse_offsets_option(option: str, text: str, empty: int | None) -> Bound:
    """Return the bound that the option's text names: earliest, latest, or offsets by partition.

    `empty` is the special offset with which a batch read would have no rows; None for streaming reads. Raises
    BadOption.
    """
    word = text.lower()
    if word in WORDS:
        if WORDS[word] == empty:
            raise BadOption(
                f"option {option}={word} would read nothing in a batch read; give {_other_word(word)} or offsets as "
                "JSON"
            )
        return Bound(option, everywhere=WORDS[word])
    each = parse_offsets(option, text)
    for partition, offset in each.items():
        _check_offset(option, partition, offset, empty)
    return Bound(option, each=each)


def _check_offset(option: str, partition: TopicPartition, offset: int, empty: int | None) -> None:
    """Raise BadOption for an offset that is not valid, or with which the read has no rows."""
    if offset == empty:
        word = next(w for w, special in WORDS.items() if special == offset)
        raise BadOption(
            f"option {option} has {offset} ({word}) for {partition}, which would read nothing in a batch read; give "
            f"{_other_word(word)} or an offset"
        )
    if not EARLIEST <= offset <= MAX_LONG:
        raise BadOption(
            f"option {option} has {offset} for {partition}, which is not valid; give an offset, -2 (earliest) or "
            "-1 (latest)"
        )


def _other_word(word: str) -> str:
    """The opposite of `earliest` or `latest`."""
    return next(w for w in WORDS if w != word)


def _parse_time(option: str, text: str) -> int:
    """Return the time in ms since 1970. Raises BadOption."""
    if not re.fullmatch(r"0*[0-9]{1,18}", text.strip()):
        raise BadOption(
            f"option {option}={text!r} is not a time; give milliseconds since 1970, for example 1700000000000"
        )
    return int(text)


def _checked_times(option: str, each: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    """The times, if all are valid. Raises BadOption."""
    for partition, time in each.items():
        if not 0 <= time <= MAX_LONG:
            raise BadOption(
                f"option {option} has {time} for {partition}, which is not a time; give milliseconds since 1970"
            )
    return each


def parse_offsets(option: str, text: str) -> dict[TopicPartition, int]:
    """Return the offset of each partition that the JSON text lists, like `{"orders": {"0": 23, "1": -2}}`.

    The order is that of topic and partition. Raises BadOption.
    """
    example = '{"orders": {"0": 23, "1": -2}}'
    try:
        parsed = json.loads(text)
        found = {
            TopicPartition(t, _parse_partition(p)): _check_integer(o) for t, ps in parsed.items() for p, o in ps.items()
        }
    except (ValueError, AttributeError) as error:
        raise BadOption(f"option {option}={text!r} is not valid; give JSON, for example {example}") from error
    if not found:
        raise BadOption(f"option {option}={text!r} has no partition; give JSON, for example {example}")
    return dict(sorted(found.items()))


def parse_assign(text: str) -> tuple[TopicPartition, ...]:
    """Parse the option assign, JSON like `{"orders": [0, 1]}`. Raises ValueError."""
    try:
        parsed = json.loads(text)
        found = {TopicPartition(t, _parse_partition(p)) for t, ps in parsed.items() for p in ps}
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(
            f'{text!r} is not JSON with topics and partitions; give for example {{"orders": [0, 1]}}'
        ) from error
    if not found:
        raise ValueError(f'{text!r} names no partition; give JSON, for example {{"orders": [0, 1]}}')
    return tuple(sorted(found))


def _parse_partition(given: object) -> int:
    """Return the partition number, also from a string of digits. Raises ValueError."""
    number = int(given) if isinstance(given, str) and given.isdigit() else given
    if not 0 <= _check_integer(number) <= MAX_INT:
        raise ValueError(f"partition {given!r} is not a whole number from 0 to {MAX_INT}; correct it")
    return _check_integer(number)


def _check_integer(given: object) -> int:
    """Return the value if it is an integer; raises ValueError for others, booleans included."""
    if not isinstance(given, int) or isinstance(given, bool):
        raise ValueError(f"{given!r} is not a whole number; correct the partition or offset")
    return given
