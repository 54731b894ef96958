"""The AlterPartition table, row by row, as a decision and through the handler."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.controller_room import Room, alter_partition

from klamm.controller.context import ControllerContext
from klamm.controller.decisions.alter_partition import Proposal, Verdict, check_sender, judge
from klamm.controller.events import AlterPartitionReceived, BrokerChange, ControlledShutdown, ResumeAfterFailure
from klamm.controller.handlers.brokers import on_broker_change, on_controlled_shutdown
from klamm.controller.handlers.failover import on_resume_after_failure
from klamm.controller.handlers.isr import on_alter_partition
from klamm.controller.settings import ControllerSettings
from klamm.controller.topic import Partition
from klamm.model.assignment import ReplicaAssignment
from klamm.model.brokers import Broker
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr, LeaderRecoveryState
from klamm.model.topic_ids import ZERO_ID
from klamm.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    BrokerState,
)
from klamm.zk.fenced import ControllerMoved
from klamm.zk.operations import Create, Op, Set
from klamm.zk.znodes import encode_topic

RECOVERED, RECOVERING = LeaderRecoveryState
NOW = LeaderAndIsr(BrokerId(1), 5, (BrokerId(1), BrokerId(2)), 6, 8)


def ids(digits: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(d)) for d in digits)


def cluster(now: LeaderAndIsr | None = NOW) -> tuple[ControllerContext, Partition]:
    """Brokers 1 to 4 registered, 4 shutting down; partition `a-0` on 1, 2, 3 and 4."""
    context = ControllerContext(7)
    context.add_brokers(Broker(b, (), epoch=100) for b in ids("1234"))
    context.begin_shutdown(BrokerId(4))
    partition = context.add_partition(context.add_topic("a", None), 0, ReplicaAssignment(ids("1234")))
    if now is not None:
        context.put_leadership(partition, now)
    return context, partition


def asked(
    isr: str = "123", sender: int = 1, leader_epoch: int = 5, partition_epoch: int = 8, recovery: int = RECOVERED
) -> Proposal:
    """A proposal with these differences from the current state."""
    return Proposal(BrokerId(sender), leader_epoch, ids(isr), recovery, partition_epoch)


FAULT_ROWS = {
    "partition epoch ahead of us": (asked(partition_epoch=9), ErrorCode.NOT_CONTROLLER),
    "leader epoch ahead of us": (asked(leader_epoch=6), ErrorCode.NOT_CONTROLLER),
    "leader epoch behind": (asked(leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
    "leader epoch behind, though the content is the same": (
        asked("12", leader_epoch=4, partition_epoch=7),
        ErrorCode.FENCED_LEADER_EPOCH,
    ),
    "partition epoch behind": (asked(partition_epoch=7), ErrorCode.INVALID_UPDATE_VERSION),
    "another broker than the leader": (asked(sender=2), ErrorCode.INVALID_REQUEST),
    "recovering with two in the ISR": (asked(recovery=RECOVERING), ErrorCode.INVALID_REQUEST),
    "recovered becomes recovering": (asked("1", recovery=RECOVERING), ErrorCode.INVALID_REQUEST),
    "a recovery state nobody knows": (asked(recovery=2), ErrorCode.INVALID_REQUEST),
    "an empty ISR": (asked(""), ErrorCode.INVALID_REQUEST),
    "a dead member": (asked("125"), ErrorCode.INELIGIBLE_REPLICA),
    "a member that shuts down": (asked("124"), ErrorCode.INELIGIBLE_REPLICA),
}


@pytest.mark.parametrize(("proposal", "error"), FAULT_ROWS.values(), ids=FAULT_ROWS)
def test_alter_partition_is_refused_with_the_error_code_for_each_kind_of_invalid_request(
    proposal: Proposal, error: ErrorCode
) -> None:
    context, partition = cluster()

    verdict = judge(context, partition, proposal, 3)

    assert (verdict.error, verdict.write, verdict.current) == (error, None, None)
    assert verdict.why


RECOVERING_ROWS = {
    "partition epoch behind": (asked(partition_epoch=7, recovery=RECOVERING), ErrorCode.INVALID_UPDATE_VERSION),
    "partition epoch ahead": (asked(partition_epoch=9, recovery=RECOVERING), ErrorCode.NOT_CONTROLLER),
    "leader epoch behind": (asked(leader_epoch=4, recovery=RECOVERING), ErrorCode.FENCED_LEADER_EPOCH),
    "leader epoch ahead": (asked(leader_epoch=6, recovery=RECOVERING), ErrorCode.NOT_CONTROLLER),
    "all epochs right": (asked(recovery=RECOVERING), ErrorCode.INVALID_REQUEST),
}


@pytest.mark.parametrize("now", [NOW, NOW._replace(isr=ids("1"), recovery=RECOVERING)], ids=["recovered", "recovering"])
@pytest.mark.parametrize(("proposal", "error"), RECOVERING_ROWS.values(), ids=RECOVERING_ROWS)
def test_alter_partition_checks_epochs_before_the_leader_recovery_state(
    now: LeaderAndIsr, proposal: Proposal, error: ErrorCode
) -> None:
    """The leader may be working with what is no longer so."""
    context, partition = cluster(now)

    assert judge(context, partition, proposal, 3).error is error


def test_alter_partition_with_a_wrong_epoch_is_refused_even_from_a_recovering_leader() -> None:
    context, partition = cluster(NOW._replace(isr=ids("1"), recovery=RECOVERING))
    epochs = {"partition_epoch": (7, 9), "leader_epoch": (4, 6)}

    errors = [
        judge(context, partition, asked(**{name: wrong}), 3).error  # type: ignore[arg-type]
        for name, both in epochs.items()
        for wrong in both
    ]

    not_controller = ErrorCode.NOT_CONTROLLER
    assert errors == [ErrorCode.INVALID_UPDATE_VERSION, not_controller, ErrorCode.FENCED_LEADER_EPOCH, not_controller]


def test_alter_partition_of_an_unknown_or_never_led_partition_is_refused() -> None:
    context, partition = cluster(None)

    for p in (None, partition):
        assert judge(context, p, asked(), 3).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [0, 1])
def test_old_alter_partition_versions_get_operation_not_attempted_instead_of_ineligible_replica(version: int) -> None:
    context, partition = cluster()

    assert judge(context, partition, asked("124"), version).error is ErrorCode.OPERATION_NOT_ATTEMPTED


def test_alter_partition_refuses_a_live_isr_member_that_holds_no_replica() -> None:
    context, partition = cluster()
    context.add_brokers([Broker(BrokerId(9), ())])

    assert judge(context, partition, asked("129"), 3).error is ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize(
    ("fetched_as", "error"),
    [
        (100, ErrorCode.NONE),
        (-1, ErrorCode.NONE),
        (99, ErrorCode.INELIGIBLE_REPLICA),
        (101, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_alter_partition_refuses_a_member_that_fetched_in_another_registration(
    fetched_as: int, error: ErrorCode
) -> None:
    """It may have lost records since, in a power loss; Apache Kafka's leaders send -1."""
    context, partition = cluster()
    proposal = asked("123")._replace(broker_epochs={BrokerId(3): fetched_as})

    assert judge(context, partition, proposal, 3).error is error


@pytest.mark.parametrize("partition_epoch", [7, 8])
def test_alter_partition_with_the_current_isr_succeeds_even_with_an_old_partition_epoch(partition_epoch: int) -> None:
    context, partition = cluster()

    assert judge(context, partition, asked("12", partition_epoch=partition_epoch), 3) == Verdict(current=NOW)


def test_alter_partition_with_the_same_isr_in_another_order_is_written() -> None:
    context, partition = cluster()

    assert judge(context, partition, asked("21"), 3).write == NOW._replace(isr=ids("21"), controller_epoch=7)


def test_an_accepted_isr_change_sets_the_controller_epoch_and_keeps_the_leader_epoch() -> None:
    context, partition = cluster()

    assert judge(context, partition, asked("123"), 3).write == LeaderAndIsr(BrokerId(1), 5, ids("123"), 7, 8)


def test_a_recovering_leader_may_change_its_recovery_state_to_recovered() -> None:
    context, partition = cluster(NOW._replace(isr=ids("1"), recovery=RECOVERING))

    assert judge(context, partition, asked("1", recovery=RECOVERED), 3).write == NOW._replace(
        isr=ids("1"), recovery=RECOVERED, controller_epoch=7
    )


SENDERS = {
    "exactly its registration's": (1, 100, ErrorCode.NONE),
    "an older one": (1, 99, ErrorCode.STALE_BROKER_EPOCH),
    "a newer one": (1, 101, ErrorCode.STALE_BROKER_EPOCH),
    "none": (1, -1, ErrorCode.STALE_BROKER_EPOCH),
    "of nobody we know": (9, 100, ErrorCode.STALE_BROKER_EPOCH),
}


@pytest.mark.parametrize(("broker", "epoch", "error"), SENDERS.values(), ids=SENDERS)
def test_alter_partition_is_refused_if_the_senders_broker_epoch_differs_from_its_registration(
    broker: int, epoch: int, error: ErrorCode
) -> None:
    context, _ = cluster()

    assert check_sender(context, BrokerId(broker), epoch) is error


# ---- the handler


async def ask(room: Room, version: int = 3, **content: Any) -> tuple[AlterPartitionResponse, list[str]]:
    defaults = {"leader_epoch": 0, "partition_epoch": 0, "isr": (1, 2), "sender": 1, "topic": "a", "epoch": None}
    facts: dict[str, Any] = {**defaults, **content}
    known = room.term.context.topics.get(facts["topic"])
    isr: dict[str, Any] = {"new_isr": facts["isr"]}
    if version >= 3:
        isr = {"new_isr_with_epochs": [BrokerState(b, -1) for b in facts["isr"]]}
    data = AlterPartitionRequestPartitionData(
        partition_index=0, leader_epoch=facts["leader_epoch"], partition_epoch=facts["partition_epoch"], **isr
    )
    topic = AlterPartitionRequestTopicData(partitions=[data])
    if version < 2:
        topic.topic_name = facts["topic"]
    else:
        topic.topic_id = (known.id or ZERO_ID) if known else facts["topic_id"]
    broker = room.term.context.registered.get(BrokerId(facts["sender"]))
    epoch = broker.epoch if broker and facts["epoch"] is None else facts["epoch"] or 0
    request = AlterPartitionRequest(broker_id=facts["sender"], broker_epoch=epoch, topics=[topic])
    request = AlterPartitionRequest.decode(request.encode(version), version)
    event = AlterPartitionReceived(request, version)
    requests = await room.handle(on_alter_partition, event)
    return event.reply.result(), requests


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_each_alter_partition_version_is_answered_with_the_fields_of_that_version(version: int) -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})

    response, requests = await ask(room, version)

    response = AlterPartitionResponse.decode(response.encode(version), version)
    [topic] = response.topics
    assert (topic.topic_name == "a") == (version < 2)
    assert (topic.topic_id == room.term.context.topics["a"].id) == (version >= 2)
    [answer] = topic.partitions
    assert (answer.error_code, answer.leader_id, answer.isr, answer.partition_epoch) == (0, 1, (1, 2), 1)
    assert requests == ["UMR a-0=1/[1,2]/0/1 -> 1,2,3"]


async def test_an_isr_change_made_before_a_follower_restarted_does_not_admit_the_restarted_follower() -> None:
    """The leader proposed it to a controller that died; it sends it again to the next one."""
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    await ask(room, isr=(1, 2))
    before = room.term.context.registered[BrokerId(3)].epoch
    room.kill(3)
    await room.register(3)
    await room.become_controller()
    state = room.stored("a-0")
    event = alter_partition(room, 1, state.leader_epoch, state.partition_epoch, (1, 2, 3))
    event.request.topics[0].partitions[0].new_isr_with_epochs[2].broker_epoch = before

    await room.handle(on_alter_partition, event)

    [answer] = event.reply.result().topics[0].partitions
    assert answer.error_code is ErrorCode.INELIGIBLE_REPLICA
    assert room.stored("a-0") == state


@pytest.mark.parametrize(("version", "has_id"), [(0, False), (1, False), (2, True), (3, True)])
async def test_alter_partition_accepts_names_and_existing_topic_ids_in_a_protocol_without_topic_ids(
    version: int, has_id: bool
) -> None:
    """Ids stay after a downgrade from a protocol that had them."""
    old = ControllerSettings(BrokerId(1), ibp=(2, 7, 2))
    room = await Room.open(topics={"a": [(1, 2, 3)]} if has_id else {}, settings=old)
    if not has_id:
        znode = encode_topic(None, {0: ReplicaAssignment(ids("123"))})
        room.ensemble.apply([Create("/brokers/topics/a", znode)])
        await room.become_controller()

    response, _ = await ask(room, version, isr=(1, 2, 3))

    [topic] = response.topics
    assert (topic.topic_name == "a", topic.topic_id == room.term.context.topics["a"].id) == (not has_id, has_id)
    [answer] = topic.partitions
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (0, (1, 2, 3), 0)  # as it is: nothing is written


async def test_alter_partition_with_a_stale_broker_epoch_gets_a_top_level_error() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})

    response, requests = await ask(room, epoch=1)

    assert (response.error_code, response.topics, requests) == (ErrorCode.STALE_BROKER_EPOCH, [], [])


async def test_alter_partition_of_an_unknown_topic_id_or_topic_name_is_refused() -> None:
    import uuid

    room = await Room.open(topics={"a": [(1, 2, 3)]})
    by_id, _ = await ask(room, topic="b", topic_id=uuid.uuid4())
    by_name, _ = await ask(room, version=1, topic="b")

    assert by_id.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert by_name.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_leader_whose_isr_change_lost_to_another_clients_write_gets_that_state_in_a_new_leader_epoch() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    room.write_state("a-0", room.stored("a-0")._replace(isr=ids("13")))

    response, requests = await ask(room)

    assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert requests == [
        "UMR a-0=1/[1,2,3]/0/0 -> 1,2,3",  # as Kafka: everything asked for, changed or not
        "LISR a-0=1/[1,3]/1/2 -> 1,2,3",
        "UMR a-0=1/[1,3]/1/2 -> 1,2,3",
    ]
    again, _ = await ask(room, leader_epoch=1, partition_epoch=2, isr=(1, 2, 3))
    assert again.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert room.now("a-0") == "1 / [1,2,3] / 1 / 3"


@pytest.mark.parametrize("leader", [1, -1])
async def test_a_leader_epoch_that_another_client_lowered_is_raised_above_that_of_the_brokers(leader: int) -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    for broker in (2, 3):
        room.kill(broker)
        await room.handle(on_broker_change, BrokerChange())
    epoch, version = room.stored("a-0").leader_epoch, room.stored("a-0").partition_epoch
    await room.register(2)
    await room.handle(on_broker_change, BrokerChange())
    room.write_state("a-0", room.stored("a-0")._replace(leader=BrokerId(leader), leader_epoch=0))

    await ask(room, leader_epoch=epoch, partition_epoch=version)

    assert room.stored("a-0").leader_epoch == epoch + 1
    assert room.stored("a-0").leader == 1


@pytest.mark.parametrize("leader", [-1, 4], ids=["none", "a broker without a replica"])
async def test_a_partition_to_which_another_client_gave_no_leader_that_can_lead_gets_one(leader: int) -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    room.write_state("a-0", room.stored("a-0")._replace(leader=BrokerId(leader), isr=ids("23")))

    _, requests = await ask(room)

    assert room.now("a-0") == "2 / [2,3] / 1 / 2"
    assert requests[1:] == ["LISR a-0=2/[2,3]/1/2 -> 1,2,3", "UMR a-0=2/[2,3]/1/2 -> 1,2,3"]


async def test_a_leader_that_shuts_down_may_admit_the_follower_that_takes_over() -> None:
    room = await Room.open(topics={"a": [(1, 2)]})
    await ask(room, isr=(1,))

    async def shut_down() -> tuple[TopicPartition, ...]:
        event = ControlledShutdown(BrokerId(1), room.term.context.registered[BrokerId(1)].epoch)
        await room.handle(on_controlled_shutdown, event)
        return event.reply.result().remaining

    assert await shut_down() == (TopicPartition("a", 0),)
    response, _ = await ask(room, partition_epoch=1, isr=(1, 2))
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE

    assert await shut_down() == ()
    assert room.now("a-0") == "2 / [2] / 1 / 3"


async def test_a_leader_is_told_of_another_clients_state_that_the_controller_reads_and_leaves_as_it_is() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    room.write_state("a-0", room.stored("a-0")._replace(isr=ids("12")))
    room.kill(3)
    await room.handle(on_broker_change, BrokerChange())
    assert room.now("a-0") == "1 / [1,2] / 0 / 1"
    assert room.term.store.writer.pop_refused_paths() == ["/brokers/topics/a/partitions/0/state"]

    requests = await room.handle(on_resume_after_failure, ResumeAfterFailure())

    assert requests == ["LISR a-0=1/[1,2]/1/2 -> 1,2", "UMR a-0=1/[1,2]/1/2 -> 1,2"]
    again, _ = await ask(room, leader_epoch=1, partition_epoch=2, isr=(1,))
    assert again.topics[0].partitions[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("step", ["read", "write"])
async def test_another_clients_state_that_zookeeper_refuses_is_adopted_once_it_does_not(step: str) -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    room.write_state("a-0", room.stored("a-0"))
    path = "/brokers/topics/a/partitions/0/state"
    attempts: list[Sequence[Op]] = []

    def forbid_after_the_conflict(ops: Sequence[Op]) -> None:
        if step == "read":
            room.ensemble.unreadable.add(path)
        elif attempts:
            room.ensemble.unwritable.add(path)
        attempts.append(ops)

    room.ensemble.before_multi = forbid_after_the_conflict
    await ask(room)
    assert room.term.store.writer.pop_refused_paths() == [path]
    room.ensemble.before_multi = lambda ops: None
    room.ensemble.unwritable.clear()
    room.ensemble.unreadable.clear()

    requests = await room.handle(on_resume_after_failure, ResumeAfterFailure())

    assert room.now("a-0") == "1 / [1,2,3] / 1 / 2"
    assert requests[0] == "LISR a-0=1/[1,2,3]/1/2 -> 1,2,3"
    assert await room.handle(on_resume_after_failure, ResumeAfterFailure()) == []


async def test_alter_partition_succeeds_although_the_reply_to_its_zookeeper_write_was_lost() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    lost: list[bool] = []

    def apply_twice(ops: Sequence[Op]) -> None:
        """The connection broke after the server had applied the multi: the client sends it again."""
        if not lost:
            lost.append(True)
            room.ensemble.apply(list(ops), room.client.session_id)

    room.ensemble.before_multi = apply_twice

    response, requests = await ask(room)

    [answer] = response.topics[0].partitions
    assert lost
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (ErrorCode.NONE, (1, 2), 1)
    assert room.now("a-0") == "1 / [1,2] / 0 / 1"
    assert requests == ["UMR a-0=1/[1,2]/0/1 -> 1,2,3"]


async def test_a_replaced_controller_answers_no_alter_partition_with_an_isr_and_resigns() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    room.ensemble.apply([Set("/controller_epoch", b"9")])

    event = alter_partition(room, 1, 0, 0, [1, 2])
    with pytest.raises(ControllerMoved):
        await room.handle(on_alter_partition, event)
    assert (room.channels.take(), event.owes_answer) == ([], True)  # NOT_CONTROLLER, once it has looked who is


async def test_a_repeated_alter_partition_request_succeeds_without_a_zookeeper_write() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})
    first, _ = await ask(room)
    second, _ = await ask(room)

    assert first == second
    assert room.stored("a-0").partition_epoch == 1
