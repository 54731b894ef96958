"""A replica is created and stopped repeatedly while its broker hangs: few merged requests have the same effect."""

import random
import uuid
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field

import pytest
from tests.support.controller_room import words

import klamm.controller.pending
from klamm.controller.channels import partitions_deleted_by
from klamm.controller.context import ControllerContext
from klamm.controller.control_requests import (
    ControlItem,
    LeaderAndIsrItem,
    RequestBuilder,
    StopReplicaItem,
    UpdateMetadataItem,
)
from klamm.controller.merged_stops import is_worth_merging, merge_control_requests
from klamm.controller.pending import MAX_UNMERGED_REQUESTS, PendingRequests
from klamm.controller.sent_states import leader_and_isr_state, metadata_state
from klamm.controller.settings import ControllerSettings
from klamm.controller.topic import Partition
from klamm.model.assignment import ReplicaAssignment
from klamm.model.brokers import Broker
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import EPOCH_DURING_DELETE, LeaderAndIsr
from klamm.replication.instructions import instructions_of, stop_instructions_of
from klamm.runtime.time_slices import CountedSlices
from klamm.sim.nodes.replicas import Replicas
from klamm.wire.messages import LeaderAndIsrRequest, StopReplicaPartitionState, StopReplicaRequest

HUNG = BrokerId(2)


@dataclass
class Orders:
    """Makes requests to the hung broker about partitions of one topic that others lead."""

    context: ControllerContext = field(default_factory=lambda: ControllerContext(7))
    settings: ControllerSettings = field(default_factory=lambda: ControllerSettings(BrokerId(1)))
    ids: int = 0

    def __post_init__(self) -> None:
        self.context.add_brokers([Broker(HUNG, (), epoch=102)])
        self.make_anew()

    def make_anew(self) -> None:
        """Remove the topic, and create another one under its name."""
        self.ids += 1
        if self.ids > 1:
            self.context.remove_topic("a")
        topic = self.context.add_topic("a", uuid.UUID(int=self.ids))
        for number in range(3):
            p = self.context.add_partition(topic, number, ReplicaAssignment((BrokerId(1), HUNG)))
            self.context.put_leadership(p, LeaderAndIsr(BrokerId(1), 0, (BrokerId(1),), 7))

    def partition(self, number: int) -> Partition:
        found = self.context.partition("a", number)
        assert found is not None
        return found

    def raised(self, number: int) -> Partition:
        """The partition with its leader epoch raised by one."""
        p = self.partition(number)
        self.context.put_leadership(
            p, LeaderAndIsr(BrokerId(1), p.leader_epoch + 1, (BrokerId(1),), 7, p.leader_epoch + 1)
        )
        return p

    def comes(self, number: int, is_new: bool = True) -> list[ControlItem]:
        """A LeaderAndIsr that makes the broker a follower of this partition."""
        p = self.raised(number)
        told = UpdateMetadataItem({p: metadata_state(self.context, p, brief=True)}, ("c",), 1)
        return [LeaderAndIsrItem({p: leader_and_isr_state(p, is_new, True, brief=True)}, ("c",), 1), told]

    def stops(self, number: int, delete: bool, leader_epoch: int | None = None) -> list[ControlItem]:
        """A StopReplica for this partition."""
        p = self.partition(number)
        epoch = p.leader_epoch if leader_epoch is None else leader_epoch
        return [StopReplicaItem({p: StopReplicaPartitionState(number, epoch, delete)}, ("c",), 1)]

    def goes(self, number: int) -> list[ControlItem]:
        """The StopReplica requests that stop and then delete this replica."""
        return [*self.stops(number, delete=False), *self.stops(number, delete=True)]

    def carried_out(self, items: Iterable[ControlItem]) -> tuple[object, ...]:
        """Logs and replicas of the broker after these requests; it begins with replicas of the first topic."""
        logs = {TopicPartition("a", n): uuid.UUID(int=1) for n in range(3)}
        replicas = Replicas(HUNG, logs)
        builder = RequestBuilder(self.context, self.settings, CountedSlices())
        for item in items:
            for message in builder.messages(item, self.context.registered[HUNG]):
                if isinstance(message, LeaderAndIsrRequest):
                    replicas.apply_leader_and_isr(instructions_of(message, builder.version(item)), 0.0)
                elif isinstance(message, StopReplicaRequest):
                    replicas.stop(stop_instructions_of(message, builder.version(item)))
        hosted = {p: (r.leader_epoch, r.is_fetching) for p, r in sorted(replicas.hosted.items()) if p in logs}
        return sorted(logs.items()), hosted


def waiting(items: Iterable[ControlItem]) -> list[ControlItem]:
    pending = PendingRequests()
    for item in items:
        pending.put(item)
        assert len(pending) <= MAX_UNMERGED_REQUESTS
    return [pending.take() for _ in range(len(pending))]


def merge(items: list[ControlItem]) -> list[ControlItem]:
    return [step for step in merge_control_requests(items, 2_500) if not isinstance(step, int)]


def answer(steps: Generator[int, None, bool]) -> bool:
    """The return value of a generator of steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bool(end.value)


def merged(items: list[ControlItem]) -> list[str]:
    return [words(item) for item in merge(items) if not isinstance(item, UpdateMetadataItem)]


def test_queued_requests_that_start_and_stop_a_replica_many_times_merge_to_few() -> None:
    orders = Orders()
    items = [item for _ in range(200) for item in (*orders.comes(0), *orders.goes(0))]

    left = waiting(items)

    assert orders.carried_out(left) == orders.carried_out(items)


def test_queued_stop_replica_requests_for_single_replicas_merge_to_few() -> None:
    context = ControllerContext(7)
    context.add_brokers([Broker(HUNG, (), epoch=102)])
    topic = context.add_topic("a", uuid.UUID(int=1))
    gone = [context.add_partition(topic, n, ReplicaAssignment((HUNG,))) for n in range(4 * MAX_UNMERGED_REQUESTS)]

    left = waiting(StopReplicaItem({p: StopReplicaPartitionState(p.partition, 0, True)}, ("c",), 1) for p in gone)

    assert [p for item in left for p in item.partitions] == gone


def test_merged_stop_replica_requests_delete_an_earlier_replica_before_later_requests() -> None:
    orders = Orders()
    items = [*orders.goes(0), *orders.comes(0), *orders.goes(0), *orders.comes(0), *orders.comes(0, is_new=False)]
    assert merged(items) == ["SR a-0@1+delete", "LISR a-0=1/[1]/3/3+new"]

    items += orders.goes(0)
    assert merged(items) == ["SR a-0@3+delete"]


def test_a_stop_replica_without_deletion_is_kept_when_requests_are_merged() -> None:
    orders = Orders()
    items = [*orders.stops(0, delete=False), *orders.comes(0, is_new=False), *orders.stops(0, delete=False)]

    assert merged(items) == ["SR a-0@0", "LISR a-0=1/[1]/1/1", "SR a-0@1"]


def test_merging_stop_replica_requests_keeps_a_deletion_with_any_leader_epoch() -> None:
    orders = Orders()
    items = [*orders.stops(0, True, EPOCH_DURING_DELETE), *orders.comes(0), *orders.stops(0, True)]

    assert merged(items) == [f"SR a-0@{EPOCH_DURING_DELETE}+delete"]


def test_merging_requests_keeps_the_deletions_of_a_topic_and_of_its_recreation() -> None:
    orders = Orders()
    items = orders.stops(0, delete=True)
    orders.make_anew()
    items += [*orders.comes(0), *orders.stops(0, delete=True)]

    [item] = [i for i in merge(items) if isinstance(i, StopReplicaItem)]
    assert set(partitions_deleted_by([item])) == set(
        partitions_deleted_by(i for i in items if isinstance(i, StopReplicaItem))
    )
    assert len(item.stops) == 2


def test_large_stop_replica_requests_for_different_partitions_are_not_merged() -> None:
    orders = Orders()
    different: list[ControlItem] = [item for n in range(3) for item in orders.stops(n, delete=True)]
    stops = [i for i in different if isinstance(i, StopReplicaItem)]

    assert answer(is_worth_merging(stops, max_partitions=2_500))
    assert not answer(is_worth_merging(stops, max_partitions=1))
    assert answer(is_worth_merging([*stops, *stops], max_partitions=1))
    assert not answer(is_worth_merging(stops[:1], max_partitions=2_500))


def a_life(orders: Orders, dice: random.Random) -> list[ControlItem]:
    """A random sequence of requests to the broker."""
    items: list[ControlItem] = []
    for _ in range(dice.randint(1, 40)):
        number = dice.randrange(3)
        match dice.randrange(12):
            case 0:
                orders.make_anew()
            case 1 | 2 | 3 | 4:
                items += orders.comes(number)
            case 5 | 6:
                items += orders.comes(number, is_new=False)
            case 7:
                items += orders.stops(number, delete=False)
            case 8:
                items += orders.stops(number, delete=True, leader_epoch=EPOCH_DURING_DELETE)
            case _:
                items += orders.goes(number)
    return items


@pytest.mark.parametrize("seed", range(100))
def test_merged_control_requests_have_the_same_effect_on_a_broker_as_single_requests(seed: int) -> None:
    orders = Orders()
    items = a_life(orders, random.Random(seed))

    left = merge(items)

    assert orders.carried_out(left) == orders.carried_out(items)
    asked, kept = (
        set(partitions_deleted_by(i for i in each if isinstance(i, StopReplicaItem))) for each in (items, left)
    )
    assert kept >= asked


@pytest.mark.parametrize("seed", range(100))
def test_stop_replica_requests_merged_in_time_slices_have_the_effect_of_unmerged_requests(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(klamm.controller.pending, "MAX_UNMERGED_REQUESTS", 4)
    monkeypatch.setattr(klamm.controller.pending, "MERGE_STEP_PARTITIONS", 3)
    dice, orders, pending = random.Random(seed), Orders(), PendingRequests()
    items = a_life(orders, dice)
    left: list[ControlItem] = []

    for item in items:
        pending.put(item)
        if dice.random() < 0.1:
            left.append(pending.take())
    left += [pending.take() for _ in range(len(pending))]

    assert orders.carried_out(left) == orders.carried_out(items)
    asked, kept = (
        set(partitions_deleted_by(i for i in each if isinstance(i, StopReplicaItem))) for each in (items, left)
    )
    assert kept >= asked
