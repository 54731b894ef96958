"""Replicas that a broker rejected in its answer to LeaderAndIsr, and how to repair them."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from klamm.audit import remedies
from klamm.audit.snapshot import Snapshot
from klamm.explain.sources import ExplainInputs
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.telemetry.journal_reader import Entry, in_order
from klamm.wire.api import ApiKey

_API: Final = ApiKey.LEADER_AND_ISR.name
_SHOWN: Final = 3


class Rejected(NamedTuple):
    partition: TopicPartition
    broker: int


def rejected_replicas(entries: Iterable[Entry]) -> dict[Rejected, str]:
    """The replicas that brokers rejected, with Kafka's name of the error.

    A later request to the broker about the replica removes it.
    """
    states: dict[Rejected, str] = {}
    for e in in_order(entries):
        broker, named = e.facts.get("broker"), _listed_partitions(e)
        if e.kind == "refused" and e.facts.get("what") == _API and isinstance(broker, int):
            states |= {Rejected(p, broker): str(e.facts.get("error")) for p in named}
        elif e.kind == "request" and e.facts.get("api") == _API:
            listed = set(named)  # empty: too many to list
            states = {
                r: why for r, why in states.items() if r.broker != broker or (listed and r.partition not in listed)
            }
        elif e.kind == "deletion" and e.facts.get("step") == "completed":
            topics = {p.topic for p in named}
            states = {r: why for r, why in states.items() if r.partition.topic not in topics}
    return states


def rejection_lines(inputs: ExplainInputs, is_relevant: Callable[[Rejected], bool]) -> list[str]:
    """Return, for each broker and error, a line with the rejected replicas and a line with the remedy."""
    groups: dict[tuple[int, str], list[TopicPartition]] = {}
    for rejection, error in rejected_replicas(inputs.entries).items():
        if is_relevant(rejection) and (inputs.now is None or _is_rejected_still(inputs.now, rejection)):
            groups.setdefault((rejection.broker, error), []).append(rejection.partition)
    return [
        line
        for (broker, error), its in sorted(groups.items())
        for line in _lines_of_broker(inputs.now, broker, error, sorted(its))
    ]


def _lines_of_broker(now: Snapshot | None, broker: int, error: str, partitions: list[TopicPartition]) -> list[str]:
    """Return a warning about the replicas that the broker rejects with this error, and the remedy."""
    which = ", ".join(map(str, partitions[:_SHOWN]))
    more = f" and {len(partitions) - _SHOWN:,} more" if len(partitions) > _SHOWN else ""
    if error == ErrorCode.INCONSISTENT_TOPIC_ID.name:
        directories = f"{partitions[0]}{' and the others' if len(partitions) > 1 else ''}"
        put_back = _restore_id_text(now, partitions[0])
        return [
            f"warning: {which}{more}: broker {broker} rejects its replica ({error}): its log has the id of another "
            "topic with this name, so it neither leads nor follows",
            f"    remedy: to keep that log (the topic's znode was restored, or created by hand), {put_back}; "
            f"otherwise stop broker {broker}, move the directory {directories} out of its log.dirs, and start it: it "
            "copies the partition from the leader (a leader starts with an empty one); or, if no record is needed, "
            "delete the topic and create it again",
        ]
    return [
        f"warning: {which}{more}: broker {broker} rejects its replica ({error}), so it neither leads nor follows",
        f"    remedy: find the reason in the log of broker {broker}, and restart it when it is repaired",
    ]


def _restore_id_text(now: Snapshot | None, p: TopicPartition) -> str:
    """Say how to write the topic id of the broker's log to the topic znode; only the log has that id."""
    how = remedies.restore_topic_id(now, p.topic) if now is not None and p in now.assignments else "klamm zk set"
    return f"write the ID of {p}/partition.metadata in its log.dirs to the topic's znode: {how}"


def _is_rejected_still(now: Snapshot, rejection: Rejected) -> bool:
    """Whether the rejection still matters: the replica is assigned to the broker, and it is not an in-sync follower."""
    assignment, state = now.assignments.get(rejection.partition), now.states.get(rejection.partition)
    if assignment is None or rejection.broker not in assignment.replicas:
        return False
    return state is None or rejection.broker not in state.isr or state.leader == rejection.broker


def _listed_partitions(entry: Entry) -> list[TopicPartition]:
    """Return the partitions that the journal entry lists; empty where it lists none."""
    listed = entry.facts.get("partitions")
    return [TopicPartition(t, n) for t, numbers in listed.items() for n in numbers] if isinstance(listed, dict) else []
