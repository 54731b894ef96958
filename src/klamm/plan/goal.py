"""What a plan shall bring about, by name; and the arrays that `planner.py` plans with."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from klamm.model.errors import ErrorCode, UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.plan.arrays import NO_REPLICA, UNKNOWN_RACK, Ints, PlanInput
from klamm.plan.cluster_load import ClusterLoad
from klamm.plan.history import BrokerHistory, PartitionHistory, leading_shares, reliability_text


class Goal(NamedTuple):
    """What the command line asks for."""

    drained: Collection[BrokerId] = ()
    """Nothing stays on them."""
    excluded: Collection[BrokerId] = ()
    """They get nothing more, and keep what they have."""
    allowed: Collection[BrokerId] | None = None
    """Nothing stays on other brokers, and their racks do not count; None: all brokers are allowed."""
    replication_factor: int | None = None
    """None: each partition keeps its own."""
    topics: Collection[str] = ()
    """Only these topics change; empty: all."""
    rack_aware: bool = True


def to_arrays(load: ClusterLoad, goal: Goal) -> tuple[PlanInput, list[TopicPartition]]:
    """The arrays, and the partition of each row. Raises UsageError for what the cluster does not have."""
    _check(load, goal)
    order = sorted(load.replicas)
    held = {b for replicas in load.replicas.values() for b in replicas}
    ids = sorted(held | set(load.racks))
    numbers = {b: number for number, b in enumerate(ids)}
    drained = [b in goal.drained or (goal.allowed is not None and b not in goal.allowed) for b in ids]
    receives = [
        b in load.racks and not is_drained and b not in goal.excluded
        for b, is_drained in zip(ids, drained, strict=True)
    ]
    if not any(receives):
        raise UsageError("No broker is left that may receive replicas. Remove or exclude fewer brokers.")
    names = sorted({rack for rack in load.racks.values() if rack is not None} if goal.rack_aware else ())
    brokers, partitions = load.history.brokers, load.history.partitions
    pasts = [partitions.get(at, PartitionHistory()) for at in order]
    receiving = [b for b, may in zip(ids, receives, strict=True) if may]
    leading = dict(zip(receiving, leading_shares(load.history, receiving), strict=True))
    movable = [not goal.topics or at.topic in goal.topics for at in order]
    wanted = [goal.replication_factor or len(load.replicas[at]) for at in order]
    given = PlanInput(
        ids=np.array(ids, np.int32),
        racks=np.array([_rack_number(b, load, goal, names) for b in ids], np.int32),
        alive=np.array([b in load.racks for b in ids], bool),
        receives=np.array(receives, bool),
        drained=np.array(drained, bool),
        replicas=_replica_array([load.replicas[at] for at in order], numbers, max(wanted, default=1)),
        wanted=np.array(wanted, np.int32),
        movable=np.array(movable, bool),
        sizes=np.array([load.bytes.get(at, 0.0) for at in order], np.float64),
        rates=np.array([load.bytes_per_s.get(at, 0.0) for at in order], np.float64),
        behind=np.array([of.behind for of in pasts], np.float64),
        without_leader=np.array([of.without_leader for of in pasts], np.float64),
        leading=np.array([leading.get(b, 1.0) for b in ids], np.float64),
        names=order,
        rack_names=names,
        broker_notes=[reliability_text(brokers.get(b, BrokerHistory())) for b in ids],
    )
    return given, order


def _check(load: ClusterLoad, goal: Goal) -> None:
    """Raise UsageError for unknown brokers and topics, and where only some of the allowed brokers have a rack."""
    held = {b for replicas in load.replicas.values() for b in replicas}
    for option, brokers in (("--remove-broker", goal.drained), ("--exclude", goal.excluded)):
        if unknown := sorted(set(brokers) - held - set(load.racks)):
            raise UsageError(f"{option} {unknown[0]}: the cluster has no such broker. It has: {_listed(load.racks)}.")
    if dead := sorted(set(goal.allowed or ()) - set(load.racks)):
        raise UsageError(f"--broker-list: broker {dead[0]} is not alive. Live brokers: {_listed(load.racks)}.")
    topics = {at.topic for at in load.replicas}
    if absent := sorted(set(goal.topics) - topics):
        raise UsageError(
            f"Topic {absent[0]} does not exist ({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name}). Check --topic, or the "
            "file of topics to move."
        )
    racks = {b: rack for b, rack in load.racks.items() if goal.allowed is None or b in goal.allowed}
    without = [b for b, rack in racks.items() if rack is None]
    if goal.rack_aware and without and len(without) < len(racks):
        raise UsageError(
            f"Brokers {_listed(without)} have no rack, others have one. Set broker.rack on all of them, or pass "
            "--disable-rack-aware."
        )


def _listed(brokers: Iterable[BrokerId]) -> str:
    """The ids, sorted, with commas."""
    return ", ".join(map(str, sorted(brokers)))


def _rack_number(broker: BrokerId, load: ClusterLoad, goal: Goal, names: Sequence[str]) -> int:
    """The number of the broker's rack; where racks do not count, all have one."""
    if not names:
        return 0
    rack = load.racks.get(broker) if goal.allowed is None or broker in goal.allowed else None
    return UNKNOWN_RACK if rack is None else names.index(rack)


def _replica_array(assignment: Sequence[Sequence[BrokerId]], numbers: Mapping[BrokerId, int], width: int) -> Ints:
    """[P, R] the assignment with numbers in place of ids, filled up with `NO_REPLICA`; R is at least `width`."""
    rows = [[numbers[b] for b in replicas] for replicas in assignment]
    width = max([width, *map(len, rows)])
    return np.array([row + [NO_REPLICA] * (width - len(row)) for row in rows], np.int32).reshape(len(rows), width)
