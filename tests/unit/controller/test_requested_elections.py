"""Elections requested by the API or a znode, and elections that rebalance leaders."""

import pytest
from tests.support.controller_room import Room, alter_partition

from klamm.controller.decisions.requested_elections import Imbalance, plan_rebalance
from klamm.controller.events import (
    ApiPartitionReassignment,
    AutoPreferredReplicaLeaderElection,
    BrokerChange,
    ControlledShutdown,
    ElectionAnswer,
    ReplicaLeaderElection,
    TopicUncleanLeaderElectionEnable,
)
from klamm.controller.handlers.brokers import on_broker_change, on_controlled_shutdown
from klamm.controller.handlers.elections import on_rebalance, on_requested_election, on_topic_unclean_enabled
from klamm.controller.handlers.isr import on_alter_partition
from klamm.controller.handlers.reassignment_requests import on_api_reassignment
from klamm.controller.settings import ControllerSettings
from klamm.controller.watches import event_for
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, parse_topic_partition
from klamm.zk import znodes
from klamm.zk.admin_znodes import encode_preferred_election
from klamm.zk.operations import Create
from klamm.zk.watches import WatchEvent


async def join(room: Room, name: str, *isr: int) -> None:
    """The leader reports this ISR by AlterPartition."""
    state = room.stored(name)
    event = alter_partition(room, state.leader, state.leader_epoch, state.partition_epoch, isr, name)
    await room.handle(on_alter_partition, event)
    assert event.reply.result().topics[0].partitions[0].error_code == 0


async def bounce(room: Room, broker: int) -> None:
    """The broker dies, loses its leadership, and returns as a follower out of sync."""
    room.kill(broker)
    await room.handle(on_broker_change, BrokerChange())
    await room.register(broker)
    await room.handle(on_broker_change, BrokerChange())


async def ask(room: Room, *names: str, unclean: bool = False) -> tuple[ElectionAnswer, list[str]]:
    """Request elections for these partitions; returns the answer and the requests sent."""
    event = ReplicaLeaderElection([parse_topic_partition(n) for n in names], unclean)
    requests = await room.handle(on_requested_election, event)
    return event.reply.result(), requests


def errors(answer: ElectionAnswer) -> dict[str, ErrorCode]:
    return {str(p): refusal.error for p, refusal in answer.refused.items()}


# ---- preferred


async def test_a_preferred_election_returns_leadership_to_the_preferred_replica() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    await bounce(room, 1)
    await join(room, "a-0", 2, 3, 1)

    answer, requests = await ask(room, "a-0")

    assert answer == ElectionAnswer({parse_topic_partition("a-0"): BrokerId(1)}, {})
    assert room.now("a-0") == "1 / [2,3,1] / 2 / 3"
    assert requests == ["LISR a-0=1/[2,3,1]/2/3 -> 1,2,3", "UMR a-0=1/[2,3,1]/2/3 -> 1,2,3"]


async def test_elect_leaders_returns_an_error_code_for_each_partition() -> None:
    room = await Room.open(topics={"a": [(1, 2), (2, 1), (1, 2)]})
    await bounce(room, 1)
    await join(room, "a-2", 2, 1)

    answer, _ = await ask(room, "a-0", "a-1", "a-2", "a-9", "b-0")

    assert answer.leaders == {parse_topic_partition("a-2"): BrokerId(1)}
    assert errors(answer) == {
        "a-0": ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        "a-1": ErrorCode.ELECTION_NOT_NEEDED,
        "a-9": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "b-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert room.now("a-0").startswith("2 / [2]")


async def test_electing_a_leader_for_a_partition_that_never_had_one_returns_an_error() -> None:
    room = await Room.open(brokers=(2,), topics={"a": [(1,)]})

    answer, _ = await ask(room, "a-0")

    assert errors(answer) == {"a-0": ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


# ---- unclean


async def alone_in_sync(room: Room) -> None:
    """Broker 1 dies as the only in-sync replica of a-0."""
    await join(room, "a-0", 1)
    room.kill(1)
    await room.handle(on_broker_change, BrokerChange())
    assert room.stored("a-0").leader == -1


async def test_a_requested_unclean_election_ignores_the_config_and_is_journalled() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    await alone_in_sync(room)

    answer, _ = await ask(room, "a-0", unclean=True)

    assert answer.leaders == {parse_topic_partition("a-0"): BrokerId(2)}
    assert (room.stored("a-0").isr, room.stored("a-0").recovery) == ((2,), 1)
    decision = room.entries("decision")[-1].facts
    assert (decision["decision"], decision["unclean"], decision["rejected"]) == ("unclean", True, [[1, "not live"]])


async def test_an_uncleanly_elected_leader_is_not_marked_recovering_in_an_old_protocol() -> None:
    room = await Room.open(topics={"a": [(1, 2)]}, settings=ControllerSettings(BrokerId(1), ibp=(3, 1, 0)))
    await alone_in_sync(room)

    await ask(room, "a-0", unclean=True)

    assert room.stored("a-0").recovery == 0


async def test_an_unclean_election_of_a_led_partition_returns_election_not_needed() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})

    answer, requests = await ask(room, "a-0", unclean=True)

    assert (errors(answer), requests) == ({"a-0": ErrorCode.ELECTION_NOT_NEEDED}, [])


async def test_a_requested_unclean_election_prefers_a_live_in_sync_replica() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    room.write_state("a-0", room.stored("a-0")._replace(leader=BrokerId(-1), isr=(BrokerId(3),)))
    room.term.context.put_leadership(room.partition("a-0"), room.stored("a-0"))

    await ask(room, "a-0", unclean=True)

    assert room.now("a-0").startswith("3 / [3]")
    assert room.stored("a-0").recovery == 0


async def test_a_requested_election_without_live_replicas_returns_an_error() -> None:
    room = await Room.open(topics={"a": [(1,)]})
    room.kill(1)
    await room.handle(on_broker_change, BrokerChange())

    answer, _ = await ask(room, "a-0", unclean=True)

    assert errors(answer) == {"a-0": ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


async def test_enabling_unclean_election_in_a_topic_config_takes_effect_at_once() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    await alone_in_sync(room)
    await room.store.write_config("topics", "a", {"unclean.leader.election.enable": "true"})

    await room.handle(on_topic_unclean_enabled, TopicUncleanLeaderElectionEnable("a"))

    assert room.stored("a-0").leader == 2
    assert room.entries("decision")[-1].facts["unclean"] is True


# ---- the old tools' znode


async def test_the_preferred_replica_election_znode_is_processed_once_and_removed() -> None:
    room = await Room.open(topics={"a": [(1, 2), (1, 2)]})
    await bounce(room, 1)
    await join(room, "a-0", 2, 1)
    heard: list[WatchEvent] = []
    listed = [parse_topic_partition(n) for n in ("a-0", "a-1", "gone-0")]
    room.ensemble.apply([Create(znodes.PREFERRED_ELECTION, encode_preferred_election(listed))])
    room.client.on_watch = heard.append

    await room.handle(on_requested_election, ReplicaLeaderElection(None, unclean=False))

    assert (room.stored("a-0").leader, room.stored("a-1").leader) == (1, 2)
    assert znodes.PREFERRED_ELECTION not in room.ensemble.nodes
    assert [type(event_for(watch)) for watch in heard] == [ReplicaLeaderElection]  # which sets the watch again


async def test_the_preferred_replica_election_znode_is_processed_each_time_it_is_created() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    for leader_epoch in (2, 4):
        await bounce(room, 1)
        await join(room, "a-0", 2, 1)
        listed = encode_preferred_election([parse_topic_partition("a-0")])
        room.ensemble.apply([Create(znodes.PREFERRED_ELECTION, listed)])

        await room.handle(on_requested_election, ReplicaLeaderElection(None, unclean=False))

        assert room.now("a-0").startswith(f"1 / [2,1] / {leader_epoch} /")
        assert znodes.PREFERRED_ELECTION not in room.ensemble.nodes


async def test_a_new_controller_processes_an_existing_preferred_replica_election_znode() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    await bounce(room, 1)
    await join(room, "a-0", 2, 1)
    listed = encode_preferred_election([parse_topic_partition("a-0")])
    room.ensemble.apply([Create(znodes.PREFERRED_ELECTION, listed)])

    await room.become_controller()

    assert room.stored("a-0").leader == 1
    assert znodes.PREFERRED_ELECTION not in room.ensemble.nodes


@pytest.mark.parametrize("payload", [None, b"[]", b'{"partitions":[{"topic":1}]}'])
async def test_a_malformed_preferred_replica_election_znode_is_journalled_and_removed(payload: bytes | None) -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    room.ensemble.apply([Create(znodes.PREFERRED_ELECTION, payload)])

    await room.handle(on_requested_election, ReplicaLeaderElection(None, unclean=False))

    assert znodes.PREFERRED_ELECTION not in room.ensemble.nodes
    assert room.entries("refused")[-1].facts["what"] == znodes.PREFERRED_ELECTION


# ---- rebalance


def led_by_another(room: Room, name: str, leader: int) -> None:
    room.write_state(name, room.stored(name)._replace(leader=BrokerId(leader)))
    room.term.context.put_leadership(room.partition(name), room.stored(name))


@pytest.mark.parametrize(("partitions", "elsewhere", "moves"), [(10, 1, False), (10, 2, True), (1, 1, True)])
async def test_auto_leader_rebalance_elects_preferred_leaders_when_imbalance_exceeds_ten_percent(
    partitions: int, elsewhere: int, moves: bool
) -> None:
    room = await Room.open(topics={"a": [(1, 2)] * partitions})
    for n in range(elsewhere):
        led_by_another(room, f"a-{n}", 2)

    await room.handle(on_rebalance, AutoPreferredReplicaLeaderElection())

    assert (room.stored("a-0").leader == 1) is moves


async def test_auto_leader_rebalance_skips_a_preferred_replica_that_is_not_in_sync() -> None:
    room = await Room.open(topics={"a": [(1, 2), (3, 2)]})
    await bounce(room, 1)
    room.kill(3)
    await room.handle(on_broker_change, BrokerChange())

    requests = await room.handle(on_rebalance, AutoPreferredReplicaLeaderElection())

    assert requests == []
    refused = {e.facts["why"]: e.facts["partitions"] for e in room.entries("refused") if e.facts["what"] == "rebalance"}
    assert refused == {
        "the preferred replica is not in the ISR": {"a": [0]},
        "the preferred replica is not alive": {"a": [1]},
    }


async def test_auto_leader_rebalance_elects_preferred_leaders_during_reassignments() -> None:
    """To a preferred replica that is still being added only once it has joined."""
    room = await Room.open(topics={"a": [(1, 2)], "b": [(2, 1)], "c": [(2, 1)]})
    await bounce(room, 1)
    await join(room, "a-0", 2, 1)
    three, two, one = BrokerId(3), BrokerId(2), BrokerId(1)
    wanted = {parse_topic_partition("b-0"): (three, two), parse_topic_partition("c-0"): (three, two, one)}
    await room.handle(on_api_reassignment, ApiPartitionReassignment(wanted))

    await room.handle(on_rebalance, AutoPreferredReplicaLeaderElection())
    before = room.stored("b-0").leader, room.stored("c-0").leader
    await join(room, "c-0", 2, 3)  # not at its end: 1 has yet to join
    await room.handle(on_rebalance, AutoPreferredReplicaLeaderElection())

    assert room.stored("a-0").leader == 1
    assert before == (2, 2)
    assert (room.stored("b-0").leader, room.stored("c-0").leader) == (2, 3)


async def test_the_leader_imbalance_ratio_is_computed_per_broker() -> None:
    room = await Room.open(topics={"a": [(1, 2)] * 4 + [(2, 1)] * 4})
    room.term.context.put_leadership(room.partition("a-0"), room.stored("a-0")._replace(leader=BrokerId(2)))
    imbalance = Imbalance()
    imbalance.count(room.term.context.partitions())

    assert (imbalance.ratio(BrokerId(1)), imbalance.ratio(BrokerId(2))) == (0.25, 0.0)
    assert plan_rebalance(room.term.context, imbalance, percentage=25).elect == []
    assert plan_rebalance(room.term.context, imbalance, percentage=24).elect == [room.partition("a-0")]


async def test_the_next_auto_leader_rebalance_is_scheduled_after_the_previous_ended_or_failed() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    assert "rebalance" in room.term.timers
    room.term.timers.cancel("rebalance")
    room.term.context.partition("a", 0).assignment = None  # type: ignore[union-attr]

    with pytest.raises(AttributeError):
        await room.handle(on_rebalance, AutoPreferredReplicaLeaderElection())

    assert "rebalance" in room.term.timers


async def test_a_partition_with_an_empty_assignment_has_no_preferred_replica() -> None:
    room = await Room.open(topics={"a": [()], "b": [(1, 2)]})
    led_by_another(room, "b-0", 2)

    answer, _ = await ask(room, "a-0")
    await room.handle(on_rebalance, AutoPreferredReplicaLeaderElection())

    assert errors(answer) == {"a-0": ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert room.stored("b-0").leader == 1


async def reassign(room: Room, name: str, *target: int) -> None:
    event = ApiPartitionReassignment({parse_topic_partition(name): tuple(map(BrokerId, target))})
    await room.handle(on_api_reassignment, event)
    assert event.reply.result() == (ErrorCode.NONE, {})


async def test_auto_rebalance_during_a_reassignment_does_not_prevent_its_completion() -> None:
    room = await Room.open(topics={"a": [(2, 1)], "b": [(1,)]})
    led_by_another(room, "a-0", 1)
    await reassign(room, "b-0", 3)

    await room.handle(on_rebalance, AutoPreferredReplicaLeaderElection())
    assert room.stored("a-0").leader == 2

    await join(room, "b-0", 1, 3)
    assert (room.partition("b-0").replicas, room.stored("b-0").leader) == ((3,), 3)


async def test_auto_rebalance_elects_an_in_sync_target_replica_before_the_reassignment_completes() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    await reassign(room, "a-0", 2, 1, 3)
    assert room.now("a-0") == "1 / [1,2] / 1 / 1"

    await room.handle(on_rebalance, AutoPreferredReplicaLeaderElection())
    assert room.now("a-0") == "2 / [1,2] / 2 / 2"

    await join(room, "a-0", 1, 2, 3)
    assert room.partition("a-0").assignment == ReplicaAssignment((BrokerId(2), BrokerId(1), BrokerId(3)))
    assert room.stored("a-0").leader == 2


async def test_auto_leader_rebalance_does_not_run_when_disabled() -> None:
    room = await Room.open(settings=ControllerSettings(BrokerId(1), auto_leader_rebalance=False))

    assert "rebalance" not in room.term.timers


async def test_a_failed_election_for_a_partition_whose_leader_shuts_down_returns_an_error() -> None:
    room = await Room.open(topics={"a": [(1,)]})
    await room.handle(
        on_controlled_shutdown, ControlledShutdown(BrokerId(1), room.term.context.registered[BrokerId(1)].epoch)
    )

    answer, _ = await ask(room, "a-0", unclean=True)

    assert answer.leaders == {}
    assert errors(answer) == {"a-0": ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


async def test_elections_skip_partitions_of_a_topic_that_is_being_deleted() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    await bounce(room, 1)
    await join(room, "a-0", 2, 1)
    room.term.context.queue_deletion(["a"])

    answer, _ = await ask(room, "a-0")
    await room.handle(on_rebalance, AutoPreferredReplicaLeaderElection())

    assert errors(answer) == {"a-0": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert room.stored("a-0").leader == 2


async def test_the_refusal_of_an_election_that_was_answered_is_not_made() -> None:
    class Election(ReplicaLeaderElection):
        def refusal(self, error: ErrorCode) -> ElectionAnswer:
            raise AssertionError("one refusal for each of 100,000 partitions holds the event loop")

    election = Election([], unclean=False)
    election.answer(ElectionAnswer())
    election.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    assert election.reply.result() == ElectionAnswer()
