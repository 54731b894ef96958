"""Control requests: versions, contents, `is_new` and delete flags, order, and merging of waiting ones."""

import uuid
from dataclasses import replace

import pytest
from tests.support.controller_room import words
from tests.unit.controller.request_scene import KAFKA_REQUEST_VERSIONS, Scene, begin_deletion, ids, lisr, umr, waiting

from klamm.controller.control_requests import (
    ControlItem,
    LeaderAndIsrItem,
    StopReplicaItem,
    UpdateMetadataItem,
)
from klamm.controller.merged_metadata import merge_metadata
from klamm.controller.pending import MAX_UNMERGED_REQUESTS, PendingRequests
from klamm.controller.steps import REQUEST_PARTITIONS
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.net.encoded_messages import EncodedMessage
from klamm.sim.nodes.control_messages import partition_states


@pytest.mark.parametrize("ibp", KAFKA_REQUEST_VERSIONS)
async def test_every_version_of_every_control_request_can_be_encoded_and_decoded(ibp: str) -> None:
    scene = Scene(ibp)
    [p] = scene.partitions
    versions = scene.settings.versions
    scene.batch.add_leader_and_isr(ids(2), p, is_new=True)
    scene.batch.add_stop_replica(ids(2), p, delete=True)
    await scene.batch.send("c")
    by_kind = {type(item): item for broker, item in scene.outbox.sent if broker == 2}

    [lisr] = scene.decoded(by_kind[LeaderAndIsrItem], 2)
    states = lisr.ungrouped_partition_states or lisr.topic_states[0].partition_states
    assert (lisr.controller_id, lisr.controller_epoch) == (1, 7)
    assert lisr.broker_epoch == (102 if versions.leader_and_isr >= 2 else -1)
    assert [(x.broker_id, x.host_name, x.port) for x in lisr.live_leaders] == [(1, "h1", 9092)]
    assert (states[0].leader, states[0].isr, states[0].replicas) == (1, (1, 2), (1, 2))
    assert states[0].adding_replicas == ((2,) if versions.leader_and_isr >= 3 else ())
    assert states[0].leader_recovery_state == (1 if versions.leader_and_isr >= 6 else 0)
    if versions.leader_and_isr >= 2:
        assert lisr.topic_states[0].topic_id == uuid.UUID(int=5 if versions.leader_and_isr >= 5 else 0)

    [umr] = scene.decoded(by_kind[UpdateMetadataItem], 2)
    states = umr.ungrouped_partition_states or umr.topic_states[0].partition_states
    assert umr.broker_epoch == (102 if versions.update_metadata >= 5 else -1)
    assert [b.id for b in umr.live_brokers] == [1, 2, 3]
    if versions.update_metadata >= 5:
        assert umr.topic_states[0].topic_id == uuid.UUID(int=5 if versions.update_metadata >= 7 else 0)
    if versions.update_metadata == 0:
        assert [(b.v0_host, b.v0_port) for b in umr.live_brokers] == [("h1", 9092), ("h2", 9092), ("h3", 9092)]
    else:
        assert [e.port for e in umr.live_brokers[0].endpoints] == [9092, 9093]
    assert (states[0].leader, states[0].zk_version) == (1, 4)

    [stop] = scene.decoded(by_kind[StopReplicaItem], 2)
    listed = stop.ungrouped_partitions or stop.topics or stop.topic_states
    assert len(listed) == 1
    assert stop.broker_epoch == (102 if versions.stop_replica >= 1 else -1)


@pytest.mark.parametrize("ibp", ["0.8.2", "2.2-IV0", "2.4-IV1"])
async def test_stop_replica_before_version_3_sends_stops_and_deletions_in_two_requests(ibp: str) -> None:
    scene = Scene(ibp, partitions=3)
    for p, delete in zip(scene.partitions, (False, True, False), strict=True):
        scene.batch.add_stop_replica(ids(2), p, delete)
    await scene.batch.send("c")
    [(_, item)] = scene.outbox.sent

    first, second = scene.decoded(item, 2)

    assert (first.delete_partitions, second.delete_partitions) == (True, False)
    if scene.settings.versions.stop_replica == 0:
        assert [x.partition_index for x in first.ungrouped_partitions] == [1]
        assert [x.partition_index for x in second.ungrouped_partitions] == [0, 2]
    else:
        assert (first.topics[0].partition_indexes, second.topics[0].partition_indexes) == ((1,), (0, 2))


@pytest.mark.parametrize("ibp", ["2.6-IV0", "3.9"])
async def test_stop_replica_from_version_3_carries_stops_and_deletions_in_one_request(ibp: str) -> None:
    scene = Scene(ibp, partitions=2)
    for p, delete in zip(scene.partitions, (False, True), strict=True):
        scene.batch.add_stop_replica(ids(2), p, delete)
    await scene.batch.send("c")
    [(_, item)] = scene.outbox.sent

    [request] = scene.decoded(item, 2)

    [topic] = request.topic_states
    states = [(s.partition_index, s.leader_epoch, s.delete_partition) for s in topic.partition_states]
    assert (topic.topic_name, states) == ("a", [(0, 0, False), (1, 0, True)])


@pytest.mark.parametrize("begun", [False, True], ids=["queued", "begun"])
@pytest.mark.parametrize("delete", [False, True], ids=["stop", "delete"])
async def test_stop_replica_for_a_topic_in_deletion_carries_leader_epoch_minus_2(begun: bool, delete: bool) -> None:
    scene = Scene()
    other = scene.context.add_partition(scene.context.add_topic("b", None), 0, ReplicaAssignment(ids(1, 2)))
    scene.lead(other, 1, epoch=3)
    begin_deletion(scene.context, ["a"])
    if begun:
        scene.context.topics_with_deletion_started.add("a")
    for p in (*scene.partitions, other):
        scene.batch.add_stop_replica(ids(2), p, delete)
    await scene.batch.send("c")

    suffix = "+delete" if delete else ""
    assert scene.outbox.texts == [f"SR a-0@-2{suffix} b-0@3{suffix} -> 2"]


async def test_update_metadata_omits_partitions_that_never_had_a_leader_but_lists_all_brokers() -> None:
    scene = Scene()
    unled = scene.context.add_partition(scene.topic, 7, ReplicaAssignment(ids(1, 2)))
    scene.batch.add_metadata(ids(2), [unled])
    await scene.batch.send("c")
    [(_, item)] = scene.outbox.sent

    [request] = scene.decoded(item, 2)

    assert request.topic_states == []
    assert [b.id for b in request.live_brokers] == [1, 2, 3]


async def test_update_metadata_includes_brokers_shutting_down_but_not_dead_brokers() -> None:
    scene = Scene()
    [p] = scene.partitions
    scene.context.begin_shutdown(BrokerId(2))
    scene.context.remove_brokers(ids(3))
    scene.batch.add_leader_and_isr(ids(1, 2, 3), p, is_new=False)
    scene.batch.add_metadata(ids(1, 2, 3), [])
    scene.batch.add_stop_replica(ids(2, 3), p, delete=False)
    await scene.batch.send("c")

    kinds = {
        (text.partition(" ")[0], broker)
        for text, (broker, _) in zip(scene.outbox.texts, scene.outbox.sent, strict=True)
    }
    assert kinds == {("LISR", 1), ("LISR", 2), ("UMR", 1), ("UMR", 2), ("SR", 2)}
    [metadata] = {id(i): i for _, i in scene.outbox.sent if isinstance(i, UpdateMetadataItem)}.values()
    assert [b.id for b in scene.decoded(metadata, 1)[0].live_brokers] == [1, 2]


async def test_the_parts_of_a_split_update_metadata_request_are_recognized_as_one_change() -> None:
    scene = Scene(partitions=REQUEST_PARTITIONS + 1)
    for _ in range(2):
        scene.batch.add_metadata(ids(2), scene.partitions)
        await scene.batch.send("c")

    send_groups = [item.send_group for _, item in scene.outbox.sent if isinstance(item, UpdateMetadataItem)]
    assert [send_groups.index(send_group) for send_group in send_groups] == [0, 0, 2, 2]


async def test_control_requests_carry_the_topic_ids_of_topics_that_have_a_topic_id() -> None:
    scene = Scene()
    scene.batch.add_leader_and_isr(ids(1), scene.partitions[0], is_new=False)
    await scene.batch.send("c")

    [lisr] = scene.decoded(scene.outbox.sent[0][1], 1)
    assert lisr.topic_states[0].topic_id == uuid.UUID(int=5)


async def test_a_queued_leader_and_isr_omits_partitions_of_a_topic_removed_meanwhile() -> None:
    scene = Scene()
    scene.batch.add_leader_and_isr(ids(1), scene.partitions[0], is_new=False)
    await scene.batch.send("c")
    scene.context.remove_topic("a")
    scene.context.add_partition(scene.context.add_topic("a", uuid.UUID(int=6)), 0, ReplicaAssignment(ids(1)))

    [lisr] = scene.decoded(scene.outbox.sent[0][1], 1)
    assert lisr.topic_states == []


@pytest.mark.parametrize("ibp", ["2.1-IV0", "3.9"])
async def test_a_queued_update_metadata_sends_only_the_deletion_of_a_topic_removed_meanwhile(ibp: str) -> None:
    scene = Scene(ibp, partitions=2)
    before = umr(scene, *scene.partitions)
    begin_deletion(scene.context, ["a"])
    going = umr(scene, *scene.partitions)
    scene.context.remove_topic("a")
    scene.context.add_partition(scene.context.add_topic("a", uuid.UUID(int=6)), 0, ReplicaAssignment(ids(1)))

    told = [[(i, s.leader) for _, i, s in partition_states(scene.decoded(item, 1)[0])] for item in (before, going)]
    assert told == [[], [(None, -2)] * 2]


def test_compaction_of_queued_requests_distinguishes_a_deleted_topic_from_its_recreation() -> None:
    scene = Scene()
    begin_deletion(scene.context, ["a"])
    deletion = umr(scene, *scene.partitions)
    items: list[ControlItem] = [replace(deletion, deletes=True) for _ in range(MAX_UNMERGED_REQUESTS)]
    scene.context.remove_topic("a")
    topic = scene.context.add_topic("a", uuid.UUID(int=6))
    again = scene.context.add_partition(topic, 0, ReplicaAssignment(ids(1, 2)))
    scene.context.put_leadership(again, LeaderAndIsr(BrokerId(1), 0, ids(1, 2), 1))
    items += [umr(scene, again), umr(scene, again)]

    assert waiting(items) == ["UMR a-0=-2/[1,2]/0/0", "UMR a-0=1/[1,2]/0/0"]


def merge(metadata: list[UpdateMetadataItem]) -> list[UpdateMetadataItem]:
    return [step for step in merge_metadata(metadata, REQUEST_PARTITIONS) if not isinstance(step, int)]


def made_and_deleted(scene: Scene, life: int, partitions: int) -> list[ControlItem]:
    """The UpdateMetadata requests for a topic that is created and deleted again."""
    topic = scene.context.add_topic("a", uuid.UUID(int=100 + life))
    made = [scene.context.add_partition(topic, n, ReplicaAssignment(ids(1, 2))) for n in range(partitions)]
    for p in made:
        scene.context.put_leadership(p, LeaderAndIsr(BrokerId(1), life, ids(1, 2), 1))
    coming = umr(scene, *made, cause=str(life))
    begin_deletion(scene.context, ["a"])
    going = replace(umr(scene, *made, cause=str(life)), deletes=True)
    scene.context.remove_topic("a")
    return [coming, going]


def test_requests_queued_for_repeated_creation_and_deletion_of_a_topic_compact_to_few() -> None:
    scene = Scene()
    scene.context.remove_topic("a")
    pending = PendingRequests()
    for life in range(20 * MAX_UNMERGED_REQUESTS):
        for item in made_and_deleted(scene, life, partitions=2 if life else 4):
            pending.put(item)
        assert len(pending) <= MAX_UNMERGED_REQUESTS

    topic = scene.context.add_topic("a", uuid.UUID(int=6))
    newest = scene.context.add_partition(topic, 0, ReplicaAssignment(ids(1, 2)))
    scene.context.put_leadership(newest, LeaderAndIsr(BrokerId(1), 0, ids(1, 2), 1))
    items = [*(pending.take() for _ in range(len(pending))), umr(scene, newest)]
    merged = merge([i for i in items if isinstance(i, UpdateMetadataItem)])

    told = [[(n, i, s.leader) for (_, n), i, s in partition_states(scene.decoded(item, 1)[0])] for item in merged]
    assert [sorted(request) for request in told] == [
        [(n, None, -2) for n in range(4)],
        [(0, uuid.UUID(int=6), 1)],
    ]


def test_deleting_a_recreated_topic_does_not_change_the_topic_id_of_queued_deletions() -> None:
    scene = Scene()
    scene.context.remove_topic("a")
    items = made_and_deleted(scene, 1, partitions=3) * 2
    topic = scene.context.add_topic("a", uuid.UUID(int=6))
    newest = scene.context.add_partition(topic, 0, ReplicaAssignment(ids(1, 2)))
    scene.context.put_leadership(newest, LeaderAndIsr(BrokerId(1), 0, ids(1, 2), 1))
    begin_deletion(scene.context, ["a"])
    items.append(replace(umr(scene, newest), deletes=True))

    merged = merge([i for i in items if isinstance(i, UpdateMetadataItem)])

    told = [{(n, i, s.leader) for (_, n), i, s in partition_states(scene.decoded(item, 1)[0])} for item in merged]
    assert told == [{(1, None, -2), (2, None, -2)}, {(0, uuid.UUID(int=6), -2)}]


def test_update_metadata_without_partitions_still_carries_the_broker_list() -> None:
    scene = Scene()
    merged = merge([umr(scene, cause="1"), umr(scene, cause="2")])

    assert [(dict(item.states), item.causes) for item in merged] == [({}, ("1", "2"))]
    assert merge([]) == []


def test_queued_requests_for_deletions_of_many_topics_compact_to_few() -> None:
    pending = PendingRequests()
    for number in range(4 * MAX_UNMERGED_REQUESTS):
        scene = Scene(name=f"t{number}")
        begin_deletion(scene.context, [f"t{number}"])
        pending.put(replace(umr(scene, *scene.partitions), deletes=True))
        assert len(pending) <= MAX_UNMERGED_REQUESTS

    told = [p.topic for _ in range(len(pending)) for p in pending.take().partitions]
    assert sorted(told) == sorted(f"t{number}" for number in range(4 * MAX_UNMERGED_REQUESTS))


async def test_queued_metadata_of_a_deleted_topic_does_not_replace_that_of_its_recreation() -> None:
    scene = Scene()
    begin_deletion(scene.context, ["a"])
    scene.batch.add_metadata(ids(1), scene.partitions[:1])
    await scene.batch.send("c")
    deletion = scene.outbox.sent[-1][1]
    scene.context.remove_topic("a")
    topic = scene.context.add_topic("a", uuid.UUID(int=6))
    again = scene.context.add_partition(topic, 0, ReplicaAssignment(ids(1)))
    scene.context.put_leadership(again, LeaderAndIsr(BrokerId(1), 0, ids(1), 1))
    scene.batch.add_metadata(ids(1), [again])
    await scene.batch.send("d")

    pending = PendingRequests()
    for item in (deletion, scene.outbox.sent[-1][1]):
        pending.put(item)
    for _ in range(MAX_UNMERGED_REQUESTS):
        pending.put(LeaderAndIsrItem({}, ("e",), 0))

    assert len(pending) < MAX_UNMERGED_REQUESTS
    assert [words(pending.take()) for _ in range(2)] == ["UMR a-0=-2/[1,2]/0/0", "UMR a-0=1/[1]/0/0"]


@pytest.mark.parametrize("ibp", ["2.2-IV0", "2.4-IV0", "2.4-IV1", "2.8-IV1", "3.2-IV0", "3.9"])
@pytest.mark.parametrize("count", [1, 3, 150])
async def test_leader_and_isr_encoded_in_pieces_equals_its_encoding_as_a_whole(
    ibp: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm.controller.encoded_bodies.REQUEST_PARTITIONS", 2)
    monkeypatch.setattr("klamm.controller.control_requests.REQUEST_PARTITIONS", 1)
    scene = Scene(ibp)
    topics = [scene.context.add_topic(f"t{n}", uuid.UUID(int=n + 9)) for n in range(count)]
    added = [scene.context.add_partition(t, 0, ReplicaAssignment(ids(1, 2))) for t in topics]
    for p in added:
        scene.lead(p, 1)
    scene.partitions += added
    item = lisr(scene, *scene.partitions)
    version = scene.builder.version(item)

    [body] = await scene.builder.bodies(item, scene.context.registered[BrokerId(2)])

    assert isinstance(body, EncodedMessage)
    [whole] = scene.builder.messages(item, scene.context.registered[BrokerId(2)])
    assert b"".join(body.encode_pieces(version)) == whole.encode(version)


async def test_large_leader_and_isr_requests_to_several_brokers_share_the_encodings_of_their_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("klamm.controller.control_requests.REQUEST_PARTITIONS", 1)
    scene = Scene(partitions=3)
    for p in scene.partitions:
        scene.batch.add_leader_and_isr(ids(1, 2), p, is_new=False)
    await scene.batch.send("c")
    items = [item for _, item in scene.outbox.sent if isinstance(item, LeaderAndIsrItem)]
    encoded = []

    for item in items:
        await scene.builder.bodies(item, scene.context.registered[BrokerId(2)])
        encoded.append([id(state.encoded) for state in item.states.values()])

    assert len(items) == 2
    assert encoded[0] == encoded[1]
