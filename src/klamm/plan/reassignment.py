"""Plan a reassignment: assignments, allowed brokers and racks in; new assignments with a reason for each out.

A replica moves only for a reason: its broker is removed, its rack has two replicas while another rack has none, the
replication factor shrinks, or, with `spread`, its broker has at least two replicas more than another one. The order of
replicas is free to change, so leaders are spread by it. Load is counted over all partitions; plans are repeatable.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from klamm.model.errors import ErrorCode, UsageError
from klamm.model.ids import BrokerId, TopicPartition

Replicas = tuple[BrokerId, ...]
Racks = Mapping[BrokerId, str | None]
"""The brokers that may have replicas, each with its rack."""


@dataclass(frozen=True, slots=True)
class Goal:
    racks: Racks
    replication_factor: int | None = None
    """None: each partition keeps its own."""
    kept: frozenset[BrokerId] = frozenset()
    """Dead brokers: they keep their replicas and get no more."""
    spread: bool = True
    """Whether replicas and leaders also move just to balance the load."""


@dataclass(slots=True)
class Plan:
    moves: dict[TopicPartition, Replicas] = field(default_factory=dict)
    """Only the partitions that change, sorted."""
    reasons: dict[TopicPartition, list[str]] = field(default_factory=dict)

    def add_reason(self, at: TopicPartition, reason: str) -> None:
        """Record why a partition changes."""
        self.reasons.setdefault(at, []).append(reason)


def plan_moves(assignment: Mapping[TopicPartition, Replicas], chosen: Collection[TopicPartition], goal: Goal) -> Plan:
    """Plan new replicas for the `chosen` partitions; the others count as load.

    Raises UsageError when it is impossible.
    """
    _check_feasible(assignment, chosen, goal)
    draft = _Draft(assignment, goal)
    plan = Plan()
    ordered = sorted(chosen)
    for at in ordered:
        draft.drop_surplus_on_removed_brokers(at, plan)
        draft.move_off_removed_brokers(at, plan)
        draft.adjust_replication_factor(at, plan)
    if goal.spread:
        for at in ordered:
            draft.spread_over_racks(at, plan)
        draft.balance_replicas(ordered, plan)
    leaders_may_change = [at for at in ordered if goal.spread or draft.replicas[at][:1] != assignment[at][:1]]
    draft.spread_leaders(leaders_may_change, plan)
    plan.moves = {at: r for at in ordered if (r := draft.replicas[at]) != assignment[at]}
    plan.reasons = {at: plan.reasons.get(at, []) for at in plan.moves}
    return plan


def _check_feasible(
    assignment: Mapping[TopicPartition, Replicas], chosen: Collection[TopicPartition], goal: Goal
) -> None:
    """Raise UsageError when racks are incomplete, or there are too few brokers for the replicas."""
    named = [rack for rack in goal.racks.values() if rack is not None]
    if named and len(named) != len(goal.racks):
        without = sorted(b for b, rack in goal.racks.items() if rack is None)
        raise UsageError(
            f"Brokers {', '.join(map(str, without))} have no rack, others have one. Set broker.rack on all of them, or "
            "pass --disable-rack-aware."
        )
    for at in chosen:
        replicas = assignment[at]
        wanted = goal.replication_factor or len(replicas)
        possible = len(goal.racks) + len(goal.kept.intersection(replicas))
        if wanted > possible:
            raise UsageError(
                f"{at} needs {wanted} brokers for its {wanted} replicas, but only {possible} are allowed "
                f"({ErrorCode.INVALID_REPLICATION_FACTOR.name}). Allow more brokers, or lower --replication-factor."
            )


class _Draft:
    def __init__(self, assignment: Mapping[TopicPartition, Replicas], goal: Goal) -> None:
        self.goal = goal
        self.replicas = dict(assignment)
        self.held: Counter[BrokerId] = Counter(dict.fromkeys(goal.racks, 0))
        self.led: Counter[BrokerId] = Counter(dict.fromkeys(goal.racks, 0))
        self.rack_count = len(set(goal.racks.values()))
        for replicas in assignment.values():
            self.held.update(b for b in replicas if b in goal.racks)
            self.led.update(b for b in replicas[:1] if b in goal.racks)

    def drop_surplus_on_removed_brokers(self, at: TopicPartition, plan: Plan) -> None:
        """Drop surplus replicas on removed brokers first: they need not be copied."""
        wanted = self._target_replication_factor(at)
        for broker in reversed(self.replicas[at]):
            if len(self.replicas[at]) > wanted and self._is_removed(broker):
                self._set_replicas(at, tuple(b for b in self.replicas[at] if b != broker))
                plan.add_reason(at, f"- {broker}: the broker is excluded, and the replication factor is {wanted}")

    def move_off_removed_brokers(self, at: TopicPartition, plan: Plan) -> None:
        """Replace the replicas that are on removed brokers."""
        for index, broker in enumerate(self.replicas[at]):
            if self._is_removed(broker):
                new = self._choose_new_broker(at, without=broker, leads=index == 0)
                self._replace_replica(at, broker, new)
                plan.add_reason(at, f"{broker} -> {new}: broker {broker} is excluded")

    def adjust_replication_factor(self, at: TopicPartition, plan: Plan) -> None:
        """Add or drop replicas until the partition has the wanted number."""
        wanted = self._target_replication_factor(at)
        while len(self.replicas[at]) < wanted:
            new = self._choose_new_broker(at)
            self._set_replicas(at, (*self.replicas[at], new))
            plan.add_reason(at, f"+ {new}: the replication factor is {wanted}")
        while len(self.replicas[at]) > wanted:
            gone = self._choose_surplus_replica(at)
            self._set_replicas(at, tuple(b for b in self.replicas[at] if b != gone))
            plan.add_reason(at, f"- {gone}: the replication factor is {wanted}")

    def spread_over_racks(self, at: TopicPartition, plan: Plan) -> None:
        """Move replicas until they are in as many different racks as possible."""
        racks = self.goal.racks
        while len(self._racks_of(at)) < min(len(self.replicas[at]), self.rack_count):
            doubled = Counter(racks[b] for b in self.replicas[at])
            broker = max((b for b in self.replicas[at] if doubled[racks[b]] > 1), key=lambda b: (self.held[b], b))
            new = self._choose_new_broker(at, without=broker)
            self._replace_replica(at, broker, new)
            plan.add_reason(
                at, f"{broker} -> {new}: rack {racks[broker]} has another replica, rack {racks[new]} has none"
            )

    def balance_replicas(self, chosen: Iterable[TopicPartition], plan: Plan) -> None:
        """Move replicas until no two brokers differ by more than one, as far as racks and partitions allow."""
        on: dict[BrokerId, dict[TopicPartition, None]] = {b: {} for b in self.goal.racks}
        for p in chosen:
            for broker in self.replicas[p]:
                on[broker][p] = None
        exhausted: set[tuple[BrokerId, BrokerId]] = set()
        while pair := self._next_uneven_pair(exhausted):
            full, free = pair
            at = next((p for p in on[full] if self._can_move(p, full, free)), None)
            if at is None:
                exhausted.add(pair)
                continue
            plan.add_reason(
                at,
                f"{full} -> {free}: broker {full} has {self.held[full]} replicas, broker {free} has {self.held[free]}",
            )
            self._replace_replica(at, full, free)
            del on[full][at]
            on[free][at] = None
            exhausted = {s for s in exhausted if not {full, free}.intersection(s)}

    def _next_uneven_pair(self, exhausted: Collection[tuple[BrokerId, BrokerId]]) -> tuple[BrokerId, BrokerId] | None:
        """The brokers with most and fewest replicas between which a replica may still move."""
        rising = sorted(self.goal.racks, key=lambda b: (self.held[b], b))
        for full in reversed(rising):
            for free in rising:
                if self.held[full] - self.held[free] < 2:
                    break
                if (full, free) not in exhausted:
                    return full, free
        return None

    def _can_move(self, at: TopicPartition, full: BrokerId, free: BrokerId) -> bool:
        """Whether a replica may move from `full` to `free`: it must not reduce the number of racks."""
        replicas, racks = self.replicas[at], self.goal.racks
        if free in replicas:
            return False
        after = {racks[b] for b in replicas if b != full} | {racks[free]}
        return len(after) >= len(self._racks_of(at))

    def spread_leaders(self, partitions: Iterable[TopicPartition], plan: Plan) -> None:
        """Put another replica first in the list where this balances the preferred leaders."""
        for at in partitions:
            replicas = self.replicas[at]
            first = min(replicas, key=lambda b: (self.led[b], replicas.index(b)))
            if self.led[replicas[0]] - self.led[first] < 2:
                continue
            plan.add_reason(
                at,
                f"leader {first}: broker {first} is preferred for {self.led[first]} partitions, {replicas[0]} for "
                f"{self.led[replicas[0]]}",
            )
            self._set_replicas(at, (first, *(b for b in replicas if b != first)))

    def _target_replication_factor(self, at: TopicPartition) -> int:
        """Return the replication factor that the plan aims at: the goal's, else the partition's present one."""
        return self.goal.replication_factor or len(self.replicas[at])

    def _is_removed(self, broker: BrokerId) -> bool:
        """Whether the goal says that the broker shall have no replicas."""
        return broker not in self.goal.racks and broker not in self.goal.kept

    def _racks_of(self, at: TopicPartition) -> set[str | None]:
        """The racks that have a replica of the partition."""
        return {self.goal.racks.get(b) for b in self.replicas[at]}

    def _choose_new_broker(
        self, at: TopicPartition, without: BrokerId | None = None, *, leads: bool = False
    ) -> BrokerId:
        """Choose a broker for a new replica: one in a rack without a replica, then the one with fewest replicas."""
        there = self.replicas[at]
        racks = self.goal.racks
        used = Counter(racks[b] for b in there if b in racks and b != without)
        free = [b for b in racks if b not in there]
        return min(free, key=lambda b: (used[racks[b]], self.held[b], self.led[b] if leads else 0, b))

    def _choose_surplus_replica(self, at: TopicPartition) -> BrokerId:
        """Choose the replica to drop: never the preferred leader.

        It is one in a rack with two replicas, and then the one on the broker with most replicas.
        """
        replicas, racks = self.replicas[at], self.goal.racks
        used = Counter(racks.get(b) for b in replicas)
        return max(replicas[1:], key=lambda b: (used[racks.get(b)], self.held[b], replicas.index(b)))

    def _replace_replica(self, at: TopicPartition, old: BrokerId, new: BrokerId) -> None:
        """Put broker `new` in the place of broker `old` in the draft."""
        self._set_replicas(at, tuple(new if b == old else b for b in self.replicas[at]))

    def _set_replicas(self, at: TopicPartition, replicas: Replicas) -> None:
        """Set the replicas, and update the counts of replicas and preferred leaders."""
        before = self.replicas[at]
        self.replicas[at] = replicas
        self.held.subtract(b for b in before if b in self.goal.racks)
        self.held.update(b for b in replicas if b in self.goal.racks)
        self.led.subtract(b for b in before[:1] if b in self.goal.racks)
        self.led.update(b for b in replicas[:1] if b in self.goal.racks)
