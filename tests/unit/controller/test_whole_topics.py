"""A failover that sends topics as a whole tells brokers the same as one that makes a state for each partition."""

import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import settings
from tests.support.controller_room import Room
from tests.unit.controller.request_scene import ids, registered

from klamm.controller import control_requests, whole_topics
from klamm.controller.context import ControllerContext
from klamm.controller.control_requests import ControlItem, LeaderAndIsrItem, RequestBuilder, UpdateMetadataItem
from klamm.controller.handlers import failover
from klamm.controller.mirror import Mirror
from klamm.controller.pending import PendingRequests
from klamm.controller.request_batch import RequestBatch
from klamm.controller.sent_states import leader_and_isr_state, metadata_state
from klamm.controller.settings import ControllerSettings, parse_ibp
from klamm.controller.state_encoder import StateEncoder
from klamm.controller.topic import Partition, Topic
from klamm.model.assignment import ReplicaAssignment
from klamm.model.brokers import Broker
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr, LeaderRecoveryState
from klamm.runtime.time_slices import CountedSlices
from klamm.wire.api import ApiKey, api
from klamm.wire.messages import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from klamm.zk import znodes
from klamm.zk.operations import Create, Op, Set

BROKERS: Final = (1, 2, 3, 4, 5)
IBPS: Final = ("1.0-IV0", "2.3-IV1", "2.4-IV0", "2.4-IV1", "2.8-IV1", "3.2-IV0", "3.9-IV0")
"""One for each combination of versions of LeaderAndIsr and UpdateMetadata since 1.0."""


# ---- two failovers of equal clusters


class Sent(NamedTuple):
    """What a broker is told in one LeaderAndIsr, or by the end in all UpdateMetadata."""

    head: Any
    states: dict[Any, Any]


class Told(NamedTuple):
    """What a broker is told; metadata of whole topics follows elections, so that its place is not compared."""

    leader_and_isr: list[Sent]
    metadata: list[Sent]


class Plan:
    """A random cluster, and what happens to it while there is no controller; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.topics = {
            f"t{n}": [self._replicas() for _ in range(self._rng.randint(1, 6))] for n in range(self._rng.randint(1, 7))
        }
        self.dead = self._rng.sample(BROKERS, self._rng.choice((0, 0, 1, 2)))
        self.deleted = [name for name in self.topics if self._rng.random() < 0.1]

    def _replicas(self) -> tuple[int, ...]:
        return tuple(self._rng.sample(BROKERS, self._rng.randint(1, 4)))

    def changes(self) -> Iterator[Op]:
        """Writes of znodes: states, reassignments, new partitions, requests to delete."""
        for name, partitions in self.topics.items():
            assigned = {n: ReplicaAssignment(ids(*replicas)) for n, replicas in enumerate(partitions)}
            for n, replicas in enumerate(partitions):
                if self._rng.random() < 0.4:
                    isr = ids(*self._rng.sample(replicas, self._rng.randint(1, len(replicas))))
                    leader = self._rng.choice((*isr, BrokerId(-1)))
                    recovery = self._rng.choice((LeaderRecoveryState.RECOVERED, LeaderRecoveryState.RECOVERING))
                    state = LeaderAndIsr(leader, self._rng.randint(1, 9), isr, 1, 0, recovery)
                    yield Set(znodes.state_path(Partition(name, n, assigned[n]).key), znodes.encode_state(state))
                if self._rng.random() < 0.1:
                    assigned[n] = assigned[n].reassign_to(ids(*self._replicas()))
            if self._rng.random() < 0.1:
                assigned[len(assigned)] = ReplicaAssignment(ids(*self._replicas()))
            yield Set(znodes.topic_path(name), znodes.encode_topic(uuid.uuid5(uuid.NAMESPACE_DNS, name), assigned))
        for name in self.deleted:
            yield Create(f"{znodes.DELETE_TOPICS}/{name}", b"")


async def requests_of_failover(seed: int, ibp: str, from_mirror: bool) -> dict[int, Told]:
    """What the brokers of the random cluster are told by a new controller, by broker."""
    plan = Plan(seed)
    room = await Room.open(BROKERS, plan.topics, ControllerSettings(BrokerId(1), ibp=parse_ibp(ibp)))
    if from_mirror:
        room.mirror = Mirror(room.ensemble.client(), CountedSlices(), room.settings)
        await room.mirror.load()
    for number in plan.dead:
        room.kill(number)
    room.ensemble.apply(list(plan.changes()))
    room.channels.take()

    await room.become_controller()

    told: dict[int, Told] = {}
    builder = RequestBuilder(room.term.context, room.settings, CountedSlices())
    for number, item in room.channels.items:
        for message in await decoded(builder, item, room.term.context.registered[BrokerId(number)]):
            add(told.setdefault(number, Told([], [])), message)
    return told


async def decoded(builder: RequestBuilder, item: ControlItem, broker: Broker) -> list[Any]:
    """The messages of an item as the broker decodes them."""
    version = builder.version(item)
    messages = await builder.bodies(item, broker)
    return [
        api(ApiKey(m.API_KEY)).request.decode(b"".join(m.encode_pieces(version)), version)
        for m in messages
        if m.API_KEY != ApiKey.STOP_REPLICA
    ]


def add(told: Told, message: Any) -> None:
    """Add a message; of the states in UpdateMetadata the last one of each partition stays."""
    states: dict[Any, Any] = {(s.topic_name, s.partition_index): s for s in message.ungrouped_partition_states}
    for topic in message.topic_states:
        states |= {(topic.topic_name, topic.topic_id, s.partition_index): s for s in topic.partition_states}
    if isinstance(message, LeaderAndIsrRequest):
        assert told.metadata, "the broker list comes first"
        told.leader_and_isr.append(Sent((message.controller_epoch, message.broker_epoch, message.live_leaders), states))
        return
    assert isinstance(message, UpdateMetadataRequest)
    head = message.controller_epoch, message.broker_epoch, message.live_brokers
    if told.metadata and told.metadata[-1].head == head:
        told.metadata[-1].states.update(states)
    else:
        told.metadata.append(Sent(head, states))


@pytest.mark.parametrize("ibp", IBPS)
@pytest.mark.parametrize("encoded", [True, False])
async def test_failovers_with_and_without_whole_topics_send_brokers_the_same_states(
    ibp: str, encoded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make prove ONLY=properties` plays 200 seeds each."""
    if encoded:
        monkeypatch.setattr(control_requests, "REQUEST_PARTITIONS", 0)  # LeaderAndIsr is encoded in pieces
    monkeypatch.setattr(whole_topics, "REQUEST_PARTITIONS", 4)  # several parts of a topic, several UpdateMetadata
    for seed in range(settings().max_examples // 10):
        monkeypatch.setattr(failover, "MAX_SENT_BY_PARTITION", 1 << 30)
        by_partition = await requests_of_failover(seed, ibp, from_mirror=False)
        monkeypatch.setattr(failover, "MAX_SENT_BY_PARTITION", 0)

        assert await requests_of_failover(seed, ibp, from_mirror=False) == by_partition, f"seed {seed}"
        assert await requests_of_failover(seed, ibp, from_mirror=True) == by_partition, f"seed {seed}, from a mirror"


async def test_new_leaders_are_told_before_the_metadata_of_whole_topics_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failover, "MAX_SENT_BY_PARTITION", 0)
    room = await Room.open(topics={"a": [(1, 2, 3), (2, 1, 3)], "b": [(3, 2)]})
    room.kill(1)
    room.channels.take()

    await room.become_controller()

    assert room.channels.take() == [
        "UMR -> 2,3",
        "LISR a-0=1/[1,2,3]/0/0 a-1=2/[2,1,3]/0/0 b-0=3/[3,2]/0/0 -> 2,3",
        "LISR a-0=2/[2,3]/2/2 -> 2,3",
        "UMR a-0=2/[2,3]/2/2 -> 2,3",
        "UMR a-0=2/[2,3]/2/2 a-1=2/[2,1,3]/0/0 b-0=3/[3,2]/0/0 -> 2,3",
        "LISR a-1=2/[2,3]/1/1 -> 2,3",
        "UMR a-1=2/[2,3]/1/1 -> 2,3",
    ]
    assert not any(p.encoded for p in room.term.context.partitions())


async def test_a_broker_without_metadata_gets_that_of_whole_topics_before_the_elections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failover, "MAX_SENT_BY_PARTITION", 0)
    room = await Room.open(topics={"a": [(1, 2, 3)], "b": [(2, 3)]})
    room.kill(1)
    room.kill(3)
    await room.register(3)
    room.channels.take()

    await room.become_controller()

    requests = room.channels.take()
    metadata = [r for r in requests if r.startswith("UMR") and "b-0" in r]
    assert [r.rpartition(" -> ")[2] for r in metadata] == ["3", "2"]
    elected = next(n for n, r in enumerate(requests) if "a-0=2/[2]" in r)
    assert requests.index(metadata[0]) < elected < requests.index(metadata[1])


async def test_topics_are_sent_as_a_whole_in_large_clusters_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "MAX_SENT_BY_PARTITION", 3)
    kinds: list[set[type]] = []
    for partitions in (3, 4):
        room = await Room.open(topics={"a": [(1, 2, 3)] * partitions})
        room.channels.take()
        await room.become_controller()
        kinds.append({type(item.states) for _, item in room.channels.items if isinstance(item, LeaderAndIsrItem)})

    assert kinds == [{dict}, {whole_topics.LeaderAndIsrStates}]


# ---- requests that wait


class Scene:
    """Two topics with four partitions each on brokers 1, 2 and 3, sent as a whole."""

    def __init__(self) -> None:
        self.settings = ControllerSettings(BrokerId(1))
        self.context = ControllerContext(7)
        self.context.add_brokers(map(registered, (1, 2, 3)))
        self.sent: list[tuple[BrokerId, Any]] = []
        self.batch = RequestBatch(self.context, self.settings, self, CountedSlices())
        self.builder = RequestBuilder(self.context, self.settings, CountedSlices())
        self.topics = [self._topic(name, n) for n, name in enumerate("ab", 1)]

    def _topic(self, name: str, number: int) -> Topic:
        topic = self.context.add_topic(name, uuid.UUID(int=number))
        for n in range(4):
            p = self.context.add_partition(topic, n, ReplicaAssignment(ids(1, 2)))
            self.context.put_leadership(p, LeaderAndIsr(BrokerId(1), 3, ids(1, 2), 6, 4))
        return topic

    def send(self, broker: BrokerId, item: ControlItem) -> None:
        self.sent.append((broker, item))

    async def send_all(self) -> "tuple[LeaderAndIsrItem, UpdateMetadataItem]":
        """The first LeaderAndIsr and the first UpdateMetadata of a send of all topics."""
        for topic in self.topics:
            self.batch.add_whole_topic(topic)
        self.batch.add_metadata_of_whole_topics(ids(1, 2, 3), self.topics)
        await self.batch.send("c")
        items = [item for _, item in self.sent]
        return (
            next(i for i in items if isinstance(i, LeaderAndIsrItem)),
            next(i for i in items if isinstance(i, UpdateMetadataItem)),
        )

    async def told(self, item: ControlItem) -> list[str]:
        """The partitions in the messages of an item, with leader epochs."""
        [message] = await decoded(self.builder, item, self.context.registered[BrokerId(1)])
        return [
            f"{topic.topic_name}-{s.partition_index}@{s.leader_epoch}"
            for topic in message.topic_states
            for s in topic.partition_states
        ]


ALL = [f"{topic}-{n}@3" for topic in "ab" for n in range(4)]


async def test_no_states_of_whole_topics_are_joined_for_dead_brokers() -> None:
    """A LeaderAndIsr to a dead broker is never sent: its share of all states would only take time and memory."""
    scene = Scene()
    scene.context.remove_brokers([BrokerId(2)])
    whole = whole_topics.EncodedParts(scene.context, StateEncoder(scene.settings))

    for topic in scene.topics:
        for partitions in whole_topics.parts_of(topic):
            whole.add_leader_and_isr(topic, partitions)

    assert list(whole.leader_and_isr) == [1]


@pytest.mark.parametrize("size", [0, 2_500])
async def test_requests_with_whole_topics_have_the_states_at_the_time_they_were_queued(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_requests, "REQUEST_PARTITIONS", size)
    scene = Scene()
    items = await scene.send_all()

    for p in scene.context.partitions():
        scene.context.put_leadership(p, LeaderAndIsr(BrokerId(2), 9, ids(2), 6, 5))

    for item in items:
        assert await scene.told(item) == ALL
        assert [f"{p}@{s.leader_epoch}" for p, s in item.states.items()] == ALL
        assert [str(p) for p in item.partitions] == [name[:3] for name in ALL]
        assert len(item.states) == len(ALL)
        assert {str(p): item.states[p].leader for p in item.states} == {name[:3]: 1 for name in ALL}
        with pytest.raises(KeyError):
            item.states[Partition("a", 0, ReplicaAssignment(()))]


@pytest.mark.parametrize("size", [0, 2_500])
async def test_partitions_removed_since_whole_topics_were_queued_are_not_sent(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_requests, "REQUEST_PARTITIONS", size)
    scene = Scene()
    items = await scene.send_all()

    scene.context.remove_partitions([scene.topics[0].partitions[2]])
    for item in items:
        assert sorted(await scene.told(item)) == [name for name in ALL if name != "a-2@3"]
    items[1].body = None  # what brokers share is encoded anew when the broker list changes
    scene.context.remove_topic("a")
    scene.context.add_topic("a", uuid.UUID(int=9))

    for item in items:
        assert await scene.told(item) == ALL[4:]


async def test_newer_states_replace_those_of_whole_topics_that_still_wait() -> None:
    scene = Scene()
    leader_and_isr, metadata = await scene.send_all()
    pending = PendingRequests()
    for item in (leader_and_isr, metadata):
        pending.put(item)
    changed = scene.topics[0].partitions[1]
    scene.context.put_leadership(changed, LeaderAndIsr(BrokerId(2), 4, ids(2), 6, 5))
    scene.sent.clear()
    scene.batch.add_leader_and_isr(ids(1), changed, is_new=True)
    await scene.batch.send("d")
    for item in [item for broker, item in scene.sent if broker == 1]:
        pending.put(item)

    waiting = [pending.take() for _ in range(len(pending))]

    expected = [name.replace("a-1@3", "a-1@4") for name in ALL]
    assert [await scene.told(item) for item in waiting] == [expected, expected]
    assert leader_and_isr.states[changed].leader_epoch == 3


async def test_the_decoded_request_of_an_encoded_update_metadata_equals_what_is_sent() -> None:
    scene = Scene()
    _, metadata = await scene.send_all()

    [body] = await scene.builder.bodies(metadata, scene.context.registered[BrokerId(2)])

    assert body.request.topic_states[1].partition_states[3].leader_epoch == 3
    assert body.request is body.request
    assert body.request.broker_epoch == UpdateMetadataRequest().broker_epoch
    assert [b.id for b in body.request.live_brokers] == [1, 2, 3]


# ---- encoded states


@pytest.mark.parametrize("ibp", IBPS[1:])
def test_encoded_states_equal_the_encodings_of_both_requests(ibp: str) -> None:
    settings = ControllerSettings(BrokerId(1), ibp=parse_ibp(ibp))
    encoder = StateEncoder(settings)
    context = ControllerContext(7)
    context.add_brokers(map(registered, (1, 2)))
    for replicas in ((1,), (1, 2, 3), tuple(range(1, 200))):
        adding, removing = (ids(1), ids(*replicas[1:])) if settings.versions.leader_and_isr > 2 else ((), ())
        p = Partition("a", 5, ReplicaAssignment(ids(*replicas), adding, removing))
        p.leadership = LeaderAndIsr(BrokerId(-1), 2, ids(*replicas[:150]), 6, 7, LeaderRecoveryState.RECOVERING)
        state = leader_and_isr_state(p, False, settings.writes_recovery_state, brief=True)
        metadata = metadata_state(context, p, brief=True)
        version = settings.versions.leader_and_isr

        assert LeaderAndIsrRequest.encode_elements(LeaderAndIsrPartitionState, [state], version) == [
            encoder.common(p) + encoder.leader_and_isr_suffix(adding, removing, 1)
        ]
        assert UpdateMetadataRequest.encode_elements(
            UpdateMetadataPartitionState, [metadata], settings.versions.update_metadata
        ) == [encoder.common(p) + encoder.metadata_suffix(ids(*metadata.offline_replicas))]


def test_a_change_of_a_partition_drops_what_was_encoded_before() -> None:
    scene = Scene()
    encoder = StateEncoder(scene.settings)
    p = scene.topics[0].partitions[0]
    state = LeaderAndIsr(BrokerId(2), 4, ids(2), 6, 5)
    changes: list[Callable[[], None]] = [
        lambda: scene.context.put_leadership(p, state),
        lambda: scene.context.put_assignment(p, ReplicaAssignment(ids(2, 3))),
        lambda: scene.context.forget_leadership(p),
    ]
    for change in changes:
        encoder.prepare([p])
        assert p.encoded

        change()

        assert not p.encoded
