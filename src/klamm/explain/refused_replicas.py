"""Replicas that a broker refused to make or to follow with, until it is told of them again; and what helps."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from klamm.audit import remedies as mend
from klamm.audit.snapshot import Snapshot
from klamm.explain.sources import Found
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.telemetry.journal_reader import Entry, in_order
from klamm.wire.api import ApiKey

_API: Final = ApiKey.LEADER_AND_ISR.name
_SHOWN: Final = 3


class Refused(NamedTuple):
    partition: TopicPartition
    broker: int


def standing(entries: Iterable[Entry]) -> dict[Refused, str]:
    """Kafka's name of the error. Whoever is told again answers again; a deleted topic has no replicas."""
    found: dict[Refused, str] = {}
    for e in in_order(entries):
        broker, named = e.facts.get("broker"), _named(e)
        if e.kind == "refused" and e.facts.get("what") == _API and isinstance(broker, int):
            found |= {Refused(p, broker): str(e.facts.get("error")) for p in named}
        elif e.kind == "request" and e.facts.get("api") == _API:
            told = set(named)  # empty: too many to be listed
            found = {r: why for r, why in found.items() if r.broker != broker or (told and r.partition not in told)}
        elif e.kind == "deletion" and e.facts.get("step") == "completed":
            topics = {p.topic for p in named}
            found = {r: why for r, why in found.items() if r.partition.topic not in topics}
    return found


def refusals(found: Found, is_meant: Callable[[Refused], bool]) -> list[str]:
    """A line for what each broker refused, with another for what helps."""
    groups: dict[tuple[int, str], list[TopicPartition]] = {}
    for refused, error in standing(found.entries).items():
        if is_meant(refused) and (found.now is None or _is_missed(found.now, refused)):
            groups.setdefault((refused.broker, error), []).append(refused.partition)
    return [
        line for (broker, error), its in sorted(groups.items()) for line in _told(found.now, broker, error, sorted(its))
    ]


def _told(now: Snapshot | None, broker: int, error: str, partitions: list[TopicPartition]) -> list[str]:
    which = ", ".join(map(str, partitions[:_SHOWN]))
    more = f" and {len(partitions) - _SHOWN:,} more" if len(partitions) > _SHOWN else ""
    if error == ErrorCode.INCONSISTENT_TOPIC_ID.name:
        directories = f"{partitions[0]}{' and the others' if len(partitions) > 1 else ''}"
        put_back = _put_back(now, partitions[0])
        return [
            f"warning: {which}{more}: broker {broker} refuses its replica ({error}): its log is of another topic that "
            "had this name, so it neither leads nor follows",
            f"    helps: where that log is wanted (the topic's znode was restored, or made again by hand), {put_back}; "
            f"else stop broker {broker}, move the directory {directories} out of its log.dirs, and start "
            "it: it copies the partition from the leader (a leader begins with an empty one); or, where no record is "
            "needed, delete the topic and create it again",
        ]
    return [
        f"warning: {which}{more}: broker {broker} refuses its replica ({error}), so it neither leads nor follows",
        f"    helps: look into the log of broker {broker} for the reason, and restart it once that is mended",
    ]


def _put_back(now: Snapshot | None, p: TopicPartition) -> str:
    """The id is in the log alone: no broker tells it. A controller takes up what is written by itself."""
    how = mend.other_id(now, p.topic) if now is not None and p in now.assignments else "klamm zk set"
    return f"put the ID of {p}/partition.metadata in its log.dirs back into the topic's znode: {how}"


def _is_missed(now: Snapshot, refused: Refused) -> bool:
    """It is that broker's replica still, and no follower that is in sync by now."""
    assignment, state = now.assignments.get(refused.partition), now.states.get(refused.partition)
    if assignment is None or refused.broker not in assignment.replicas:
        return False
    return state is None or refused.broker not in state.isr or state.leader == refused.broker


def _named(entry: Entry) -> list[TopicPartition]:
    listed = entry.facts.get("partitions")
    return [TopicPartition(t, n) for t, numbers in listed.items() for n in numbers] if isinstance(listed, dict) else []
