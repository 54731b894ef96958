"""What handlers use during one term: settings, memory, ZooKeeper, channels, journal, timers."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from klamm.controller.channels import Channels
from klamm.controller.context import ControllerContext
from klamm.controller.decisions.elections import EARLIER_LOG, NOT_LIVE, ElectionPlan
from klamm.controller.decisions.plans import Refusal
from klamm.controller.metrics import ControllerMetrics
from klamm.controller.mirror import Mirror
from klamm.controller.request_batch import RequestBatch
from klamm.controller.settings import ControllerSettings
from klamm.controller.states import PartitionState
from klamm.controller.timers import Timers
from klamm.controller.topic import Partition
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.runtime.time_slices import Slices
from klamm.telemetry.journal import STATE_FOUND, Journal, LeaderChange, by_topic
from klamm.zk.controller_store import ControllerStore
from klamm.zk.partition_states import StatesRead

TakeMirror = Callable[[int], Awaitable[Mirror | None]]
"""The zxid that the mirror must have reached -> the mirror of this node; None where it kept none, or cannot use it."""
WaitForFeatures = Callable[[int, float], Awaitable[bool]]
"""(version of `/feature`, seconds) -> whether this node knows it, or a later one, in time."""


@dataclass(slots=True, eq=False)
class TermContext:
    """The objects of one term; `cause` is the id of the event that is being handled."""

    settings: ControllerSettings
    context: ControllerContext
    store: ControllerStore
    channels: Channels
    batch: RequestBatch
    journal: Journal
    random_bytes: Callable[[int], bytes]
    timers: Timers
    slices: Slices
    """Work on many partitions yields to the loop between its pieces."""
    metrics: ControllerMetrics
    now_ms: Callable[[], int]
    wait_for_features: WaitForFeatures
    take_mirror: TakeMirror
    cause: str = ""

    @property
    def owns_partition_state(self) -> bool:
        """Whether only the controller writes state znodes: no leader does, by its own protocol or the controller's."""
        return self.settings.controller_owns_partition_state and not self.context.leaders_write_isrs

    async def send_requests(self) -> None:
        """Send the requests that the handler added to the batch."""
        await self.batch.send(self.cause)

    async def known_states(self, partitions: Collection[Partition]) -> tuple[StatesRead[Partition], bool]:
        """The states on which a change is decided first, and whether they come from memory.

        Memory is as good as the znodes where only the controller writes states: each write names the version it was
        decided on. A znode that somebody changed by hand causes a conflict, and is read then.
        """
        known = StatesRead({p: p.leadership for p in partitions if p.leadership is not None})
        if self.owns_partition_state and len(known.found) == len(partitions):
            return known, True
        return await self.store.read_states(partitions), False

    # ---- what ZooKeeper took, into memory and journal

    def apply_elections(self, strategy: str, plan: ElectionPlan, written: Mapping[Partition, LeaderAndIsr]) -> None:
        """Put elected leaders into memory and journal, and queue requests to their replicas."""
        self._journal_states("states", written)
        decisions: list[LeaderChange] = []
        recipients: defaultdict[BrokerId, list[Partition]] = defaultdict(list)
        for p, state in written.items():
            choice, passed_over = plan.decided[p]
            assert choice is not None, f"the state of {p} was written without an election decision"
            decisions.append((p, p.leadership, state, passed_over, choice.unclean))
            self.context.put_leadership(p, state)
            self.metrics.unclean_elections += choice.unclean
            for broker in choice.recipients:
                recipients[broker].append(p)
        self.journal.leader_decisions(self.cause, strategy, decisions)
        self.batch.add_changes(written, recipients)
        self.context.move(written, PartitionState.ONLINE)

    def apply_removals(self, broker: BrokerId, written: Mapping[Partition, LeaderAndIsr]) -> None:
        """Put ISRs without the broker into memory and journal."""
        self._journal_states("states", written)
        offline, dropped = [(broker, "replica went offline")], [(broker, "a reassignment takes its replica away")]
        is_live = broker in self.context.live
        decisions: list[LeaderChange] = []
        for p, state in written.items():
            why = dropped if is_live and broker not in p.assignment.target else offline
            decisions.append((p, p.leadership, state, why, False))
            self.context.put_leadership(p, state)
        self.journal.leader_decisions(self.cause, "isr-removal", decisions)

    def apply_restarts(
        self, restarted: Mapping[Partition, tuple[BrokerId, ...]], written: Mapping[Partition, LeaderAndIsr]
    ) -> None:
        """Take written states into memory, from whose ISRs restarted brokers were removed, and journal each removal."""
        self._journal_states("states", written)
        for p, state in written.items():
            why = [(int(b), "restarted while there was no controller") for b in restarted[p]]
            self.journal.leader_decision(self.cause, "restart", p, p.leadership, state, why)
            self.context.put_leadership(p, state)

    def apply_isr_changes(self, written: Mapping[Partition, LeaderAndIsr]) -> None:
        """Put ISRs that leaders proposed into memory and journal."""
        self._journal_states("states", written)
        for p, state in written.items():
            self.journal.leader_decision(self.cause, "alter-partition", p, p.leadership, state)
            self.context.put_leadership(p, state)

    def apply_epochs(self, written: Mapping[Partition, LeaderAndIsr], kind: str) -> None:
        """Put raised leader epochs into memory and journal; `kind` says what raised them."""
        self._journal_states("states", written)
        for p, state in written.items():
            self.journal.leader_decision(self.cause, kind, p, p.leadership, state)
            self.context.put_leadership(p, state)

    def apply_created(self, written: Mapping[Partition, LeaderAndIsr]) -> None:
        """Put the first leaders into memory and journal; LeaderAndIsr with `is_new` goes to the ISR."""
        self._journal_states("created states", written)
        for p, state in written.items():
            outdated = self.context.brokers_with_earlier_log(p, state.isr)
            passed_over = [(b, EARLIER_LOG if b in outdated else NOT_LIVE) for b in p.replicas if b not in state.isr]
            self.journal.leader_decision(self.cause, "initial", p, None, state, passed_over, replicas=p.replicas)
            self.context.put_leadership(p, state)
            self.batch.add_leader_and_isr(state.isr, p, is_new=True)
        self.context.move(written, PartitionState.ONLINE)

    def apply_read(self, read: Mapping[Partition, LeaderAndIsr]) -> None:
        """Put states read from ZooKeeper into memory; journal those that this controller did not write."""
        for p, state in read.items():
            known = p.leadership
            if known is None or (state.leader, state.leader_epoch, state.isr) != (
                known.leader, known.leader_epoch, known.isr,
            ):  # fmt: skip
                self.journal.leader_decision(self.cause, STATE_FOUND, p, known, state)
            self.context.put_leadership(p, state)

    def refuse(
        self, kind: str, refused: Mapping[Partition, str], reasons: Mapping[Partition, Any] | None = None
    ) -> None:
        """Write to the journal that nothing could be done for these partitions; equal reasons share a line."""
        groups: dict[tuple[str, Any], list[Partition]] = {}
        for p, why in refused.items():
            groups.setdefault((why, (reasons or {}).get(p)), []).append(p)
        for (why, passed_over), partitions in groups.items():
            facts = {"rejected": passed_over} if passed_over else {}
            self.journal.refused(self.cause, kind, why, partitions=by_topic(partitions), **facts)

    async def refuse_requested(self, kind: str, refused: Mapping[TopicPartition, Refusal]) -> None:
        """Write refused requests to the journal, by partition; those with the same refusal share a line."""
        groups: dict[Refusal, dict[str, list[int]]] = {}
        async for (topic, partition), refusal in self.slices.each(refused.items()):
            groups.setdefault(refusal, {}).setdefault(topic, []).append(partition)
        for (error, why), partitions in groups.items():
            self.journal.refused(self.cause, kind, why, error=error.name, partitions=partitions)

    def conflicted(self, what: str, partitions: Iterable[Partition]) -> None:
        """Write to the journal that the znodes of these partitions changed after they were read."""
        if listed := by_topic(partitions):
            self.journal.write(
                self.cause, what, listed, refused="the znode changed after it was read: the decision is repeated"
            )

    def _journal_states(self, what: str, written: Mapping[Partition, LeaderAndIsr]) -> None:
        """Journal the partitions whose states were written."""
        if written:
            self.journal.write(self.cause, what, by_topic(written))
