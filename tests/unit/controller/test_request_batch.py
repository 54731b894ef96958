"""The requests of one event to brokers: order, contents, recipients."""

from tests.unit.controller.request_scene import Scene, ids

from klamm.controller.control_requests import (
    LeaderAndIsrItem,
    UpdateMetadataItem,
)
from klamm.controller.sent_states import leader_and_isr_state, metadata_state
from klamm.controller.steps import REQUEST_PARTITIONS
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr


async def test_a_batch_of_control_requests_sends_leader_and_isr_update_metadata_then_stop_replica() -> None:
    scene = Scene()
    scene.batch.add_stop_replica(ids(1), scene.partitions[0], delete=False)
    scene.batch.add_leader_and_isr(ids(2), scene.partitions[0], is_new=False)
    await scene.batch.send("c")

    assert scene.outbox.texts == [
        "LISR a-0=1/[1,2]/0/4 -> 2",
        "UMR a-0=1/[1,2]/0/4 -> 1",
        "UMR a-0=1/[1,2]/0/4 -> 2",
        "UMR a-0=1/[1,2]/0/4 -> 3",
        "SR a-0@0 -> 1",
    ]


async def test_a_queued_leader_and_isr_still_lists_a_leader_unregistered_meanwhile() -> None:
    scene = Scene()
    scene.batch.add_leader_and_isr(ids(2), scene.partitions[0], is_new=False)
    await scene.batch.send("c")
    [item] = [item for _, item in scene.outbox.sent if isinstance(item, LeaderAndIsrItem)]
    scene.context.remove_brokers(ids(1))

    [request] = scene.decoded(item, 2)
    assert [(b.broker_id, b.port) for b in request.live_leaders] == [(1, 9092)]


async def test_is_new_and_delete_flags_are_kept_by_later_changes_in_a_request_batch() -> None:
    scene = Scene()
    [p] = scene.partitions
    for flag in (True, False):
        scene.batch.add_leader_and_isr(ids(1), p, is_new=flag)
        scene.batch.add_stop_replica(ids(1), p, delete=flag)
    await scene.batch.send("c")

    assert "LISR a-0=1/[1,2]/0/4+new -> 1" in scene.outbox.texts
    assert "SR a-0@0+delete -> 1" in scene.outbox.texts


async def test_leader_and_isr_sets_is_new_for_new_replicas_only() -> None:
    scene = Scene()
    [p] = scene.partitions
    scene.batch.add_leader_and_isr(ids(1, 3), p, is_new=False)
    scene.batch.add_leader_and_isr(ids(2), p, is_new=True)
    await scene.batch.send("c")

    assert scene.outbox.texts[:3] == [
        "LISR a-0=1/[1,2]/0/4 -> 1",
        "LISR a-0=1/[1,2]/0/4+new -> 2",
        "LISR a-0=1/[1,2]/0/4 -> 3",
    ]


async def test_control_requests_of_one_batch_share_a_partition_state_object() -> None:
    scene = Scene()
    [p] = scene.partitions
    scene.batch.add_leader_and_isr(ids(1, 2), p, is_new=False)
    await scene.batch.send("c")
    shared = {id(item.states[p]) for _, item in scene.outbox.sent if isinstance(item, LeaderAndIsrItem)}
    scene.context.put_leadership(p, LeaderAndIsr(BrokerId(2), 1, ids(2), 7, 5))
    scene.batch.add_leader_and_isr(ids(1), p, is_new=False)
    await scene.batch.send("c")

    assert len(shared) == 1
    assert "LISR a-0=2/[2]/1/5 -> 1" in scene.outbox.texts
    assert p.shared_state is None


async def test_clearing_a_half_built_request_batch_releases_its_partition_states() -> None:
    scene = Scene()
    [p] = scene.partitions
    scene.batch.add_leader_and_isr(ids(1), p, is_new=False)
    p.shared_state = leader_and_isr_state(p, False, True, brief=True)
    scene.batch.clear()

    assert p.shared_state is None


async def test_brokers_without_a_registration_get_no_control_requests() -> None:
    scene = Scene()
    [p] = scene.partitions
    scene.batch.add_leader_and_isr(ids(-1, 9), p, is_new=True)
    scene.batch.add_stop_replica(ids(-1, 9), p, delete=True)
    scene.batch.add_metadata(ids(-1, 9), [])
    await scene.batch.send("c")

    assert {b for b, _ in scene.outbox.sent} == {1, 2, 3}
    assert all(isinstance(item, UpdateMetadataItem) for _, item in scene.outbox.sent)


async def test_a_sent_request_batch_leaves_no_request_for_the_next_event() -> None:
    scene = Scene()
    scene.batch.add_leader_and_isr(ids(1), scene.partitions[0], is_new=True)
    scene.batch.add_stop_replica(ids(1), scene.partitions[0], delete=True)
    scene.batch.clear()
    await scene.batch.send("c")

    assert scene.outbox.sent == []


def test_update_metadata_lists_replicas_on_dead_brokers_and_failed_log_dirs_as_offline() -> None:
    scene = Scene(partitions=2)
    first, second = scene.partitions
    scene.context.remove_brokers(ids(2))
    assert metadata_state(scene.context, first, brief=True).offline_replicas == (2,)

    scene.context.offline_dirs[BrokerId(1)] = {second: None}
    assert metadata_state(scene.context, first, brief=True).offline_replicas == (2,)
    assert metadata_state(scene.context, second, brief=True).offline_replicas == (1, 2)


async def test_update_metadata_of_many_partitions_is_split_into_several_requests() -> None:
    scene = Scene(partitions=REQUEST_PARTITIONS + 1)
    scene.batch.add_metadata(ids(1), scene.partitions)
    await scene.batch.send("c")

    assert [len(item.states) for _, item in scene.outbox.sent] == [REQUEST_PARTITIONS, 1]  # type: ignore[union-attr]


async def test_control_requests_share_one_encoded_body_until_the_broker_list_changes() -> None:
    scene = Scene()
    scene.batch.add_metadata(ids(1, 2), scene.partitions)
    await scene.batch.send("c")
    (_, item), (_, same) = scene.outbox.sent
    assert item is same

    first = scene.builder.messages(item, scene.context.registered[BrokerId(1)])[0]
    second = scene.builder.messages(item, scene.context.registered[BrokerId(2)])[0]
    assert first.request is second.request
    assert [m.broker_epoch for m in (first, second)] == [101, 102]

    scene.context.remove_brokers(ids(3))
    [later] = scene.decoded(item, 1)
    assert [b.id for b in later.live_brokers] == [1, 2]
