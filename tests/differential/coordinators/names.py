"""Names in place of what two runs never have in common: member ids, producer ids, times, and the script's own topics.

Names are given in the order in which a value is first seen: the first member id of client m1 is `m1#1`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from klamm.coordinator.topic_partitions import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from klamm.model.errors import ErrorCode

_MEMBER_ID: Final = re.compile(
    r"^(.*)-([0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})$", re.DOTALL
)
DATA: Final = "data"
OWN: Final = "own"
"""A topic that a script creates and deletes."""
PARTITIONS: Final = 2
"""Partitions of the topic `data` that a script has for itself."""


class Place:
    """What a script has for itself: a slot of both coordinator topics, partitions of `data`, its groups and ids."""

    def __init__(self, slot: int, first_partition: int, names: Mapping[str, str]) -> None:
        self.slot = slot
        self.first_partition = first_partition
        self.real = dict(names)
        """From the names of groups, transactional ids and its own topic in the script to those in the cluster."""
        self.known = {real: name for name, real in names.items()}


class Names:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._members: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._producers: dict[int, str] = {}

    def member(self, member_id: str) -> str:
        """The name of a member id: its prefix and a number. What has not the form of one stays."""
        if member_id not in self._members:
            found = _MEMBER_ID.match(member_id)
            if found is None:
                return repr(member_id)
            prefix = found[1]
            self._counts[prefix] = self._counts.get(prefix, 0) + 1
            self._members[member_id] = f"{prefix}#{self._counts[prefix]}"
        return self._members[member_id]

    def producer(self, producer_id: int) -> str:
        if producer_id < 0:
            return str(producer_id)
        return self._producers.setdefault(producer_id, f"P{len(self._producers) + 1}")

    def knows_producer(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def text(self, name: str | None) -> str:
        """A group, transactional id or topic as the script calls it."""
        return "null" if name is None else self._place.known.get(name, name)

    def partition(self, topic: str, partition: int) -> str:
        """`data-0` is the first one of the script; partitions of its slot are called so."""
        if topic == DATA:
            return f"{topic}-{partition - self._place.first_partition}"
        if topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) and partition == self._place.slot:
            return f"{topic}-slot"
        return f"{self.text(topic)}-{partition}"

    # ---- whole messages

    def describe(self, message: Any) -> str:
        """A response or record as one line, with names; lists are sorted, since their order is nowhere promised."""
        return self._value("", message, "")

    def _value(self, field: str, value: Any, topic: str) -> str:
        if value is None:
            return "null"
        if field in _BY_FIELD:
            return _BY_FIELD[field](self, value)
        if isinstance(value, msgspec.Struct):
            topic = getattr(value, "topic", None) or getattr(value, "name", None) or topic
            fields = [name for name in value.__struct_fields__ if name not in _LEFT_OUT]
            return "{" + " ".join(f"{n}={self._value(n, getattr(value, n), topic)}" for n in fields) + "}"
        if isinstance(value, list | tuple):
            return "[" + ", ".join(sorted(self._value(field, each, topic) for each in value)) + "]"
        if isinstance(value, bytes | memoryview):
            return bytes(value).hex() or "-"
        if field in _PARTITION_FIELDS and isinstance(value, int):
            return self.partition(topic, value)
        return str(value)


def _time(names: Names, value: int) -> str:
    return "T" if value > 0 else str(value)


_LEFT_OUT: Final = {"error_message", "host", "port", "node_endpoints", "current_leader", "coordinator_epoch"}
"""Texts are klamm's own; places and epochs depend on the cluster."""
_PARTITION_FIELDS: Final = {"partition", "partition_index", "index", "partitions", "partition_ids"}
_BY_FIELD: Final[dict[str, Callable[[Names, Any], str]]] = {
    **dict.fromkeys(("error_code", "partition_error_code"), lambda names, value: ErrorCode(value).name),
    **dict.fromkeys(("member_id", "leader"), Names.member),
    **dict.fromkeys(("group_id", "group", "key", "transactional_id", "topic", "name"), Names.text),
    "producer_id": Names.producer,
    "client_host": lambda names, value: str(value),
    **dict.fromkeys(
        (
            "commit_timestamp",
            "expire_timestamp",
            "current_state_timestamp",
            "transaction_start_time_ms",
            "transaction_last_update_timestamp_ms",
            "transaction_start_timestamp_ms",
            "last_timestamp",
        ),
        _time,
    ),
}
