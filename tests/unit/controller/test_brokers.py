"""Brokers that register, bounce, die, change listeners or lose log directories."""

import pytest
from tests.support.controller_room import Room, alter_partition, broker

from klamm.controller.decisions.changes import diff_brokers
from klamm.controller.events import (
    BrokerChange,
    BrokerModifications,
)
from klamm.controller.handlers.brokers import on_broker_change, on_broker_modifications
from klamm.controller.handlers.isr import on_alter_partition
from klamm.controller.settings import ControllerSettings
from klamm.controller.states import PartitionState, ReplicaState
from klamm.model.brokers import Broker
from klamm.model.ids import BrokerId
from klamm.zk.errors import MalformedReply
from klamm.zk.operations import Create, Set
from klamm.zk.registrations import VERSION_WITH_FEATURES, VERSION_WITH_LISTENERS, encode_registration


def known(*brokers: tuple[int, int]) -> dict[BrokerId, Broker]:
    """Registrations by id, from (id, epoch) pairs."""
    return {BrokerId(b): Broker(BrokerId(b), (), epoch=epoch) for b, epoch in brokers}


def test_the_controller_distinguishes_new_bounced_and_dead_brokers_by_their_registrations() -> None:
    changes = diff_brokers(known((3, 1), (1, 1), (2, 1), (7, 1)), known((9, 5), (8, 5), (2, 4), (1, 1)))

    assert [b.id for b in changes.new] == [8, 9]
    assert [(b.id, b.epoch) for b in changes.bounced] == [(2, 4)]
    assert changes.dead == (3, 7)


def test_brokers_whose_handling_is_unfinished_are_reported_again_as_new_bounced_or_dead() -> None:
    """2 came, 3 went, 4 went and is back, 5 came and bounced since, 6 came and is gone; 1 and 7 are settled."""
    now, current = known((1, 1), (2, 1), (5, 1), (6, 1)), known((1, 1), (2, 1), (4, 9), (5, 9), (7, 9))
    changes = diff_brokers(now, current, {BrokerId(b) for b in (2, 3, 4, 5, 6)})

    assert [b.id for b in changes.new] == [2, 7]
    assert [b.id for b in changes.bounced] == [4, 5]
    assert changes.dead == (3, 6)


def test_unchanged_broker_registrations_yield_no_broker_changes() -> None:
    assert not diff_brokers(known((1, 1)), known((1, 1)))


@pytest.mark.parametrize("old", ["controller", "brokers"])
async def test_a_broker_failure_reads_partition_states_first_if_leaders_write_isrs_to_zookeeper(old: str) -> None:
    settings = ControllerSettings(BrokerId(1), ibp=(2, 6, 0) if old == "controller" else (3, 9, 0))
    version = VERSION_WITH_LISTENERS if old == "brokers" else VERSION_WITH_FEATURES
    room = await Room.open(topics={"a": [(1, 2, 3)]}, settings=settings, registration_version=version)
    shrunk, whole = [room.stored("a-0")._replace(isr=tuple(map(BrokerId, isr))) for isr in ((1, 2), (1, 2, 3))]
    room.write_state("a-0", shrunk)
    room.term.context.put_leadership(room.partition("a-0"), room.stored("a-0"))
    room.write_state("a-0", whole)
    room.kill(3)

    await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "1 / [1,2] / 1 / 3"


async def test_a_broker_failure_reads_no_partition_states_if_leaders_use_alter_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    monkeypatch.setattr(room.term.store, "read_states", None)
    room.kill(1)

    await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "2 / [2,3] / 1 / 1"


async def test_a_returning_broker_gets_its_replicas_and_new_leaders_in_one_leader_and_isr() -> None:
    room = await Room.open(topics={"a": [(1,)], "b": [(2, 1)]})
    room.kill(1)
    await room.handle(on_broker_change, BrokerChange())

    await room.register(1)
    requests = await room.handle(on_broker_change, BrokerChange())

    assert requests == [
        "UMR -> 2,3",
        "UMR a-0=-1/[1]/1/1 b-0=2/[2]/1/1 -> 1",
        "LISR a-0=1/[1]/2/2 b-0=2/[2]/1/1 -> 1",
        "UMR a-0=1/[1]/2/2 b-0=2/[2]/1/1 -> 1,2,3",
    ]


async def fails(room: Room, below: str) -> None:
    """Handle a broker change that ZooKeeper fails below this path, and send the requests queued so far."""
    room.fail_once(below)
    with pytest.raises(MalformedReply):
        await on_broker_change(room.term, BrokerChange())
    await room.term.send_requests()


async def test_handling_a_broker_failure_is_completed_by_a_retry_after_a_zookeeper_failure() -> None:
    room = await Room.open(topics={"a": [(1, 2)], "b": [(2, 1)]})
    room.kill(1)

    await fails(room, "/brokers/topics/a")
    assert room.now("b-0") == "2 / [2,1] / 0 / 0"
    await room.handle(on_broker_change, BrokerChange())

    assert (room.now("a-0"), room.now("b-0")) == ("2 / [2] / 1 / 1", "2 / [2] / 1 / 1")
    assert room.term.context.replicas_on(BrokerId(1))[room.partition("b-0")] is ReplicaState.OFFLINE


async def test_handling_a_broker_startup_is_completed_by_a_retry_after_a_zookeeper_failure() -> None:
    """It hears what it hosts although nothing can be elected, and all of it again with what is."""
    room = await Room.open(topics={"a": [(1,)]})
    room.kill(1)
    await room.handle(on_broker_change, BrokerChange())
    await room.register(1)

    await fails(room, "/brokers/topics/a")
    assert "LISR a-0=-1/[1]/1/1 -> 1" in room.channels.take()

    requests = await room.handle(on_broker_change, BrokerChange())
    assert "LISR a-0=1/[1]/2/2 -> 1" in requests
    assert await room.handle(on_broker_change, BrokerChange()) == []


async def test_handling_a_broker_restart_is_repeated_after_a_zookeeper_failure() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    room.kill(1)
    await room.register(1)

    await fails(room, "/brokers/topics/a")
    assert BrokerId(1) not in room.term.context.registered
    requests = await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "2 / [2] / 1 / 1"
    assert "LISR a-0=2/[2]/1/1 -> 1" in requests


async def test_a_returned_broker_gets_no_request_before_the_controller_read_its_pending_deletions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first LeaderAndIsr has to be whole: until the next attempt nothing else may come first."""
    room = await Room.open(topics={"a": [(1, 2)], "b": [(1,)]})
    room.kill(1)
    await room.handle(on_broker_change, BrokerChange())
    await room.register(1)

    async def unwilling(*_: object) -> None:
        raise MalformedReply("garbled")

    with monkeypatch.context() as broken:
        broken.setattr("klamm.controller.handlers.brokers.send_pending_deletions", unwilling)
        with pytest.raises(MalformedReply):
            await on_broker_change(room.term, BrokerChange())
    room.channels.take()
    await room.handle(on_alter_partition, alter_partition(room, 2, 1, 1, [2, 1]))
    assert 1 not in room.channels.open

    requests = await room.handle(on_broker_change, BrokerChange())
    assert [r for r in requests if r.startswith("LISR") and r.endswith("1")] == [
        "LISR a-0=2/[2,1]/1/2 b-0=1/[1]/2/2 -> 1"
    ]


async def test_a_leader_election_after_a_broker_failure_sends_each_new_state_only_once() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)], "b": [(2, 1, 3)]})
    room.kill(1)

    requests = await room.handle(on_broker_change, BrokerChange())

    assert requests == [
        "LISR a-0=2/[2,3]/1/1 -> 2,3",
        "UMR a-0=2/[2,3]/1/1 -> 2,3",
        "LISR b-0=2/[2,3]/1/1 -> 2,3",
        "UMR b-0=2/[2,3]/1/1 -> 2,3",
    ]


async def test_a_replica_that_an_election_did_not_notify_gets_leader_and_isr_after_the_isr_change() -> None:
    room = await Room.open((1, 2, 3), topics={"a": [(1, 2, 3)]})
    room.term.context.begin_shutdown(BrokerId(3))
    room.kill(1)

    requests = await room.handle(on_broker_change, BrokerChange())

    assert [r for r in requests if r.startswith("LISR")] == ["LISR a-0=2/[2]/1/1 -> 2", "LISR a-0=2/[2]/1/1 -> 2,3"]


async def test_a_broker_failure_moves_leadership_and_sends_the_new_state_to_live_brokers() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3), (2, 3, 1)]})
    room.kill(1)

    await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "2 / [2,3] / 1 / 1"
    assert room.now("a-1") == "2 / [2,3] / 1 / 1"  # led by 2 all along: only the ISR shrank
    assert room.channels.open == [2, 3]


async def test_a_broker_bounce_visible_only_in_its_epoch_counts_as_failure_and_startup() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    room.kill(1)
    await room.register(1)

    requests = await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "2 / [2,3] / 1 / 1"
    assert room.channels.log[-2:] == ["remove 1", "add 1"]
    assert requests[-3:] == [
        "UMR a-0=2/[2,3]/1/1 -> 1",
        "LISR a-0=2/[2,3]/1/1 -> 1",
        "UMR a-0=2/[2,3]/1/1 -> 1,2,3",
    ]


async def test_a_bounced_broker_gets_all_its_partitions_in_one_leader_and_isr_request() -> None:
    room = await Room.open(topics={"a": [(1, 2), (3, 1)]})
    await room.handle(on_alter_partition, alter_partition(room, 3, 0, 0, [3], "a-1"))
    room.kill(3)
    await room.handle(on_broker_change, BrokerChange())
    room.kill(1)
    await room.register(1)
    await room.register(3)

    requests = await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-1") == "3 / [3] / 2 / 3"
    assert [r for r in requests if r.startswith("LISR") and "1" in r.split("-> ")[1]] == [
        "LISR a-0=2/[2]/1/1 a-1=3/[3]/2/3 -> 1",
    ]


async def test_a_returning_broker_gets_update_metadata_before_any_leader_and_isr() -> None:
    room = await Room.open(topics={"a": [(1, 2), (2, 1), (1, 3)]})
    room.kill(1)
    await room.handle(on_broker_change, BrokerChange())
    await room.register(1)

    requests = await room.handle(on_broker_change, BrokerChange())

    to_1 = [r for r in requests if "1" in r.split("-> ")[1]]
    assert [r.split(" ")[0] for r in to_1] == ["UMR", "LISR", "UMR"]
    assert to_1[0].count("a-") == 3  # every partition with a leader, not only its own


async def test_update_metadata_is_sent_for_a_dead_broker_that_hosted_no_replica() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    room.kill(3)

    assert await room.handle(on_broker_change, BrokerChange()) == ["UMR -> 1,2"]


async def test_partitions_get_leaders_again_after_all_brokers_die_and_return() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    for number in (1, 2, 3):
        room.kill(number)
    await room.handle(on_broker_change, BrokerChange())
    assert room.now("a-0") == "-1 / [3] / 3 / 3"  # one after the other, a write each; the last stays in the ISR

    await room.register(2)
    await room.handle(on_broker_change, BrokerChange())
    assert room.partition("a-0").state is PartitionState.OFFLINE

    await room.register(3)
    await room.handle(on_broker_change, BrokerChange())
    assert room.now("a-0") == "3 / [3] / 4 / 4"
    assert room.partition("a-0").state is PartitionState.ONLINE


async def test_a_malformed_broker_registration_does_not_hide_other_brokers() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    room.ensemble.apply([Create("/brokers/ids/4", b"{}"), Create("/brokers/ids/x", b"")])
    room.kill(1)

    await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "2 / [2,3] / 1 / 1"
    [refused] = [e for e in room.entries("refused") if e.facts["what"] == "broker registration"]
    assert "/brokers/ids/4" in refused.facts["why"]


@pytest.mark.parametrize("is_hidden", [False, True])
async def test_a_broker_whose_registration_becomes_unreadable_stays_registered_and_is_journalled(
    is_hidden: bool,
) -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    if is_hidden:
        room.ensemble.unreadable.add("/brokers/ids/1")
    else:
        room.ensemble.apply([Set("/brokers/ids/1", b"rubbish")])
    room.kill(3)

    await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "1 / [1,2] / 1 / 1"
    assert room.channels.open == [1, 2]
    [refused] = [e.facts for e in room.entries("refused") if e.facts["what"] == "broker registration"]
    assert (refused["broker"], refused["why"] == "ZooKeeper answered NO_AUTH") == (1, is_hidden)


async def test_a_broker_that_returns_with_an_unreadable_registration_counts_as_dead() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    room.kill(1)
    room.ensemble.apply([Create("/brokers/ids/1", b"rubbish")])

    await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0") == "2 / [2,3] / 1 / 1"
    assert room.channels.open == [2, 3]


async def test_a_broker_without_the_control_plane_listener_gets_no_requests_and_blocks_no_others() -> None:
    room = await Room.open(settings=ControllerSettings(BrokerId(1)))
    payload = encode_registration(broker(4), 0).replace(b"PLAINTEXT", b"OTHER").replace(b'"OTHER"}', b'"PLAINTEXT"}')
    room.ensemble.apply([Create("/brokers/ids/4", payload)])
    await room.register(5)

    await room.handle(on_broker_change, BrokerChange())

    assert room.channels.open == [1, 2, 3, 5]
    assert [e.facts["broker"] for e in room.entries("refused") if e.facts["what"] == "channel"] == [4]


async def test_a_changed_broker_listener_is_sent_to_every_broker() -> None:
    room = await Room.open()
    moved = encode_registration(broker(2, "elsewhere"), 0)
    room.ensemble.apply([Set("/brokers/ids/2", moved)])

    assert await room.handle(on_broker_modifications, BrokerModifications(BrokerId(2))) == ["UMR -> 1,2,3"]
    assert room.term.context.registered[BrokerId(2)].endpoints[0].host == "elsewhere"
    assert await room.handle(on_broker_modifications, BrokerModifications(BrokerId(2))) == []


async def test_a_broker_that_bounces_before_its_registration_change_was_handled_counts_as_bounced() -> None:
    room = await Room.open(topics={"a": [(2, 3)]})
    room.kill(2)
    await room.register(2, "elsewhere")

    assert await room.handle(on_broker_modifications, BrokerModifications(BrokerId(2))) == []
    await room.handle(on_broker_change, BrokerChange())

    assert room.now("a-0").startswith("3 / ")  # nobody knows what its restart lost
    assert room.term.context.registered[BrokerId(2)].endpoints[0].host == "elsewhere"


async def test_a_modified_broker_registration_that_is_unreadable_or_deleted_changes_nothing() -> None:
    room = await Room.open()
    room.ensemble.apply([Set("/brokers/ids/2", b"rubbish")])

    assert await room.handle(on_broker_modifications, BrokerModifications(BrokerId(2))) == []
    assert await room.handle(on_broker_modifications, BrokerModifications(BrokerId(9))) == []
    assert list(room.term.context.registered) == [1, 2, 3]
