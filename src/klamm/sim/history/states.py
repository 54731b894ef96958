"""Leaders and ISRs: every version of each partition's state znode."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.trace import ControllerElected, Position, StateWritten

Versions = list[LeaderAndIsr]


@dataclass(slots=True)
class StateHistory:
    at: Position
    versions: dict[TopicPartition, Versions] = field(default_factory=dict)
    """Every version a state znode had; the index is the partition epoch."""
    written_at: dict[TopicPartition, list[int]] = field(default_factory=dict)
    """The zxid of each version."""
    isr_entries: dict[tuple[TopicPartition, BrokerId], int] = field(default_factory=dict)
    """When a broker last came into the ISR of a partition: the zxid."""
    created_at: dict[TopicPartition, int] = field(default_factory=dict)
    """When the state znode was created."""
    of_deleted: dict[TopicPartition, list[Versions]] = field(default_factory=dict)
    """The same of topics that are deleted by now."""
    in_doubt: set[TopicPartition] = field(default_factory=set)
    """ZooKeeper refused a write of these: it may have taken the same write before, without an answer that arrived."""
    changed_s: dict[TopicPartition, float] = field(default_factory=dict)
    """The virtual time of the newest version."""
    first_at: dict[TopicPartition, int] = field(default_factory=dict)
    """When a partition of this name got its first state, also where it is gone by now: the zxid."""

    def newest(self, p: TopicPartition) -> LeaderAndIsr | None:
        """The newest state of the partition; None where it has none."""
        versions = self.versions.get(p)
        return versions[-1] if versions else None

    def incarnations_of(self, p: TopicPartition) -> Iterator[Versions]:
        """All versions of the partition's state, for each topic of that name, the newest topic first."""
        if (versions := self.versions.get(p)) is not None:
            yield versions
        yield from reversed(self.of_deleted.get(p, []))

    def on_refused(self, paths: Iterable[str]) -> None:
        """Record that a write of these states was refused, so that the controller may not know their content."""
        for path in paths:
            parts = path.split("/")
            if parts[-1] == "state":
                self.in_doubt.add(TopicPartition(parts[3], int(parts[5])))

    def on_elected(self, event: ControllerElected) -> None:
        """Record that the new controller has read all states, so that none is in doubt."""
        self.in_doubt.clear()

    def on_state_deleted(self, p: TopicPartition) -> None:
        """Keep the versions of a deleted state as those of an earlier topic."""
        self.of_deleted.setdefault(p, []).append(self.versions.pop(p))
        self.created_at.pop(p, None)
        self.written_at.pop(p, None)

    def on_state_written(self, event: StateWritten) -> None:
        """Record the new version of the state, when it was written, and who entered the ISR."""
        p = event.partition
        self.versions.setdefault(p, []).append(event.after)
        self.written_at.setdefault(p, []).append(self.at.zxid)
        self.in_doubt.discard(p)
        self.changed_s[p] = self.at.now_s
        for broker in event.after.isr:
            if event.before is None or broker not in event.before.isr:
                self.isr_entries[p, broker] = self.at.zxid
        if event.before is None:
            self.created_at[p] = self.first_at[p] = self.at.zxid
