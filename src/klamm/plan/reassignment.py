"""Where replicas should go: assignments, allowed brokers and racks in, new assignments with a reason each out.

No record moves without need: a replica leaves its broker because that may hold none any more, because its rack holds
another one while a rack has none, because there are too many of it, or, where the load is to be spread, because its
broker holds two more than another. Orders of replicas cost nothing; leaders are spread by them. Everything is counted
over all partitions, and repeatable.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from klamm.model.errors import ErrorCode, UsageError
from klamm.model.ids import BrokerId, TopicPartition

Replicas = tuple[BrokerId, ...]
Racks = Mapping[BrokerId, str | None]
"""The brokers that may hold replicas, each with its rack."""


@dataclass(frozen=True, slots=True)
class Goal:
    racks: Racks
    replication_factor: int | None = None
    """None: each partition keeps its own."""
    kept: frozenset[BrokerId] = frozenset()
    """Brokers that keep what they hold, and get no more: they are away."""
    spread: bool = True
    """Whether replicas move for the sake of load alone, and leaders of partitions that stay where they are."""


@dataclass(slots=True)
class Plan:
    moves: dict[TopicPartition, Replicas] = field(default_factory=dict)
    """Those that change, sorted."""
    reasons: dict[TopicPartition, list[str]] = field(default_factory=dict)

    def because(self, at: TopicPartition, reason: str) -> None:
        self.reasons.setdefault(at, []).append(reason)


def plan_moves(assignment: Mapping[TopicPartition, Replicas], chosen: Collection[TopicPartition], goal: Goal) -> Plan:
    """New replicas for the `chosen`; the others count as load. Raises UsageError where there is no way."""
    _check(assignment, chosen, goal)
    draft = _Draft(assignment, goal)
    plan = Plan()
    ordered = sorted(chosen)
    for at in ordered:
        draft.drop_forbidden(at, plan)
        draft.leave_forbidden(at, plan)
        draft.fit_count(at, plan)
    if goal.spread:
        for at in ordered:
            draft.part_racks(at, plan)
        draft.level(ordered, plan)
    led_anew = [at for at in ordered if goal.spread or draft.replicas[at][:1] != assignment[at][:1]]
    draft.spread_leaders(led_anew, plan)
    plan.moves = {at: r for at in ordered if (r := draft.replicas[at]) != assignment[at]}
    plan.reasons = {at: plan.reasons.get(at, []) for at in plan.moves}
    return plan


def _check(assignment: Mapping[TopicPartition, Replicas], chosen: Collection[TopicPartition], goal: Goal) -> None:
    named = [rack for rack in goal.racks.values() if rack is not None]
    if named and len(named) != len(goal.racks):
        without = sorted(b for b, rack in goal.racks.items() if rack is None)
        raise UsageError(
            f"brokers {', '.join(map(str, without))} have no rack, others have one: set broker.rack on all of them, or "
            "say --disable-rack-aware"
        )
    for at in chosen:
        replicas = assignment[at]
        wanted = goal.replication_factor or len(replicas)
        possible = len(goal.racks) + len(goal.kept.intersection(replicas))
        if wanted > possible:
            raise UsageError(
                f"{at} needs {wanted} brokers for as many replicas, only {possible} may hold one "
                f"({ErrorCode.INVALID_REPLICATION_FACTOR.name}): allow more of them, or say --replication-factor"
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

    def drop_forbidden(self, at: TopicPartition, plan: Plan) -> None:
        """Where there are more replicas than wanted: what goes need not be copied to another broker first."""
        wanted = self._wanted(at)
        for broker in reversed(self.replicas[at]):
            if len(self.replicas[at]) > wanted and self._is_forbidden(broker):
                self._set(at, tuple(b for b in self.replicas[at] if b != broker))
                plan.because(at, f"- {broker}: it shall hold no replica, and {wanted} are wanted")

    def leave_forbidden(self, at: TopicPartition, plan: Plan) -> None:
        for index, broker in enumerate(self.replicas[at]):
            if self._is_forbidden(broker):
                new = self._best(at, without=broker, leads=index == 0)
                self._replace(at, broker, new)
                plan.because(at, f"{broker} -> {new}: {broker} shall hold no replica")

    def fit_count(self, at: TopicPartition, plan: Plan) -> None:
        wanted = self._wanted(at)
        while len(self.replicas[at]) < wanted:
            new = self._best(at)
            self._set(at, (*self.replicas[at], new))
            plan.because(at, f"+ {new}: {wanted} replicas are wanted")
        while len(self.replicas[at]) > wanted:
            gone = self._most_dispensable(at)
            self._set(at, tuple(b for b in self.replicas[at] if b != gone))
            plan.because(at, f"- {gone}: {wanted} replicas are wanted")

    def part_racks(self, at: TopicPartition, plan: Plan) -> None:
        """As many racks as replicas, as far as there are."""
        racks = self.goal.racks
        while len(self._racks_of(at)) < min(len(self.replicas[at]), self.rack_count):
            doubled = Counter(racks[b] for b in self.replicas[at])
            broker = max((b for b in self.replicas[at] if doubled[racks[b]] > 1), key=lambda b: (self.held[b], b))
            new = self._best(at, without=broker)
            self._replace(at, broker, new)
            plan.because(at, f"{broker} -> {new}: rack {racks[broker]} holds another replica, {racks[new]} none")

    def level(self, chosen: Iterable[TopicPartition], plan: Plan) -> None:
        """Until no two brokers differ by more than one, as far as racks and partitions let them."""
        on: dict[BrokerId, dict[TopicPartition, None]] = {b: {} for b in self.goal.racks}
        for p in chosen:
            for broker in self.replicas[p]:
                on[broker][p] = None
        settled: set[tuple[BrokerId, BrokerId]] = set()
        while pair := self._uneven(settled):
            full, free = pair
            at = next((p for p in on[full] if self._can_move(p, full, free)), None)
            if at is None:
                settled.add(pair)
                continue
            plan.because(at, f"{full} -> {free}: {full} holds {self.held[full]} replicas, {free} {self.held[free]}")
            self._replace(at, full, free)
            del on[full][at]
            on[free][at] = None
            settled = {s for s in settled if not {full, free}.intersection(s)}

    def _uneven(self, settled: Collection[tuple[BrokerId, BrokerId]]) -> tuple[BrokerId, BrokerId] | None:
        """The fullest and the emptiest that still can give and take."""
        rising = sorted(self.goal.racks, key=lambda b: (self.held[b], b))
        for full in reversed(rising):
            for free in rising:
                if self.held[full] - self.held[free] < 2:
                    break
                if (full, free) not in settled:
                    return full, free
        return None

    def _can_move(self, at: TopicPartition, full: BrokerId, free: BrokerId) -> bool:
        replicas, racks = self.replicas[at], self.goal.racks
        if free in replicas:
            return False
        after = {racks[b] for b in replicas if b != full} | {racks[free]}
        return len(after) >= len(self._racks_of(at))

    def spread_leaders(self, partitions: Iterable[TopicPartition], plan: Plan) -> None:
        """Another first replica where that evens out how many each broker would lead."""
        for at in partitions:
            replicas = self.replicas[at]
            first = min(replicas, key=lambda b: (self.led[b], replicas.index(b)))
            if self.led[replicas[0]] - self.led[first] < 2:
                continue
            plan.because(at, f"{first} leads: it would lead {self.led[first]}, {replicas[0]} {self.led[replicas[0]]}")
            self._set(at, (first, *(b for b in replicas if b != first)))

    def _wanted(self, at: TopicPartition) -> int:
        return self.goal.replication_factor or len(self.replicas[at])

    def _is_forbidden(self, broker: BrokerId) -> bool:
        return broker not in self.goal.racks and broker not in self.goal.kept

    def _racks_of(self, at: TopicPartition) -> set[str | None]:
        return {self.goal.racks.get(b) for b in self.replicas[at]}

    def _best(self, at: TopicPartition, without: BrokerId | None = None, *, leads: bool = False) -> BrokerId:
        """In a rack that has none, if there is one; then the one that holds least."""
        there = self.replicas[at]
        racks = self.goal.racks
        used = Counter(racks[b] for b in there if b in racks and b != without)
        free = [b for b in racks if b not in there]
        return min(free, key=lambda b: (used[racks[b]], self.held[b], self.led[b] if leads else 0, b))

    def _most_dispensable(self, at: TopicPartition) -> BrokerId:
        """Never the first while there is another: one whose rack holds a second, then on the fullest broker."""
        replicas, racks = self.replicas[at], self.goal.racks
        used = Counter(racks.get(b) for b in replicas)
        return max(replicas[1:], key=lambda b: (used[racks.get(b)], self.held[b], replicas.index(b)))

    def _replace(self, at: TopicPartition, old: BrokerId, new: BrokerId) -> None:
        self._set(at, tuple(new if b == old else b for b in self.replicas[at]))

    def _set(self, at: TopicPartition, replicas: Replicas) -> None:
        before = self.replicas[at]
        self.replicas[at] = replicas
        self.held.subtract(b for b in before if b in self.goal.racks)
        self.held.update(b for b in replicas if b in self.goal.racks)
        self.led.subtract(b for b in before[:1] if b in self.goal.racks)
        self.led.update(b for b in replicas[:1] if b in self.goal.racks)
