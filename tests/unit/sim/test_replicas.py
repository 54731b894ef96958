"""Simulated replicas answer control requests as Kafka's brokers do."""

import uuid

import pytest

from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.instructions import PartitionInstruction, StopInstruction
from klamm.sim.nodes.replicas import LAG_S, Replica, Replicas
from klamm.wire.messages import AlterPartitionResponsePartitionData

P = TopicPartition("orders", 0)
ID, OTHER_ID = uuid.UUID(int=7), uuid.UUID(int=8)
ME = BrokerId(1)


def ids(text: str) -> tuple[BrokerId, ...]:
    """Broker ids from digits."""
    return tuple(BrokerId(int(c)) for c in text)


def order(
    leader: int = 1, epoch: int = 5, isr: str = "123", replicas: str = "123", topic_id: uuid.UUID = ID, version: int = 3
) -> PartitionInstruction:
    """A LeaderAndIsr instruction for one partition."""
    state = LeaderAndIsr(BrokerId(leader), epoch, ids(isr), 1, version)
    return PartitionInstruction(P, topic_id, state, ReplicaAssignment(ids(replicas)), False)


@pytest.fixture
def replicas() -> Replicas:
    found = Replicas(ME, {})
    found.apply_leader_and_isr([order()], 0.0)
    return found


ORDERS = {
    "a newer leader epoch": (order(epoch=6), ErrorCode.NONE),
    "the epoch we have": (order(), ErrorCode.STALE_CONTROLLER_EPOCH),
    "an older leader epoch": (order(epoch=4), ErrorCode.STALE_CONTROLLER_EPOCH),
    "not among the replicas": (order(epoch=6, replicas="23"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "another topic's id": (order(epoch=6, topic_id=OTHER_ID), ErrorCode.INCONSISTENT_TOPIC_ID),
    "no topic id": (order(epoch=6, topic_id=ZERO_ID), ErrorCode.NONE),
}


@pytest.mark.parametrize(("given", "expected"), ORDERS.values(), ids=ORDERS)
def test_a_simulated_broker_answers_leader_and_isr_like_kafka(
    replicas: Replicas, given: PartitionInstruction, expected: ErrorCode
) -> None:
    assert replicas.apply_leader_and_isr([given], 1.0) == {P: expected}
    assert replicas.logs == {P: ID}


def test_a_simulated_log_without_topic_id_adopts_the_id_of_leader_and_isr() -> None:
    replicas = Replicas(ME, {P: ZERO_ID})
    replicas.apply_leader_and_isr([order(topic_id=ZERO_ID)], 0.0)

    assert replicas.apply_leader_and_isr([order()], 0.0) == {P: ErrorCode.NONE}
    assert replicas.logs == {P: ID}


def test_a_simulated_log_of_a_deleted_topic_rejects_the_recreated_topics_id() -> None:
    """Another process on the same machine."""
    replicas = Replicas(ME, {P: OTHER_ID})

    assert replicas.apply_leader_and_isr([order()], 0.0) == {P: ErrorCode.INCONSISTENT_TOPIC_ID}


def test_a_simulated_broker_accepts_a_newer_leader_epoch_with_an_older_partition_epoch(replicas: Replicas) -> None:
    """The state znode was deleted and put back, so its versions start over: klamm's broker does as it is told."""
    replicas.apply_leader_and_isr([order(leader=2, epoch=6, version=0)], 1.0)

    assert (replicas.hosted[P].leader, replicas.hosted[P].leader_epoch) == (2, 6)


STOPS = {
    "older epoch": (StopInstruction(P, 4, True), ErrorCode.FENCED_LEADER_EPOCH, True),
    "same epoch, keep": (StopInstruction(P, 5, False), ErrorCode.NONE, True),
    "same epoch, delete": (StopInstruction(P, 5, True), ErrorCode.NONE, False),
    "topic deleted": (StopInstruction(P, -2, True), ErrorCode.NONE, False),
    "old controller": (StopInstruction(P, -1, True), ErrorCode.NONE, False),
}


@pytest.mark.parametrize(("given", "expected", "kept"), STOPS.values(), ids=STOPS)
def test_a_simulated_broker_answers_stop_replica_like_kafka(
    replicas: Replicas, given: StopInstruction, expected: ErrorCode, kept: bool
) -> None:
    assert replicas.stop([given]) == {P: expected}
    assert (P in replicas.hosted, P in replicas.logs) == (kept, kept)


def test_a_stop_replica_to_a_simulated_broker_deletes_a_stray_log() -> None:
    replicas = Replicas(ME, {P: ID})

    assert replicas.stop([StopInstruction(P, 5, True)]) == {P: ErrorCode.NONE}
    assert replicas.logs == {}


def test_a_simulated_replica_on_a_failed_log_dir_answers_kafka_storage_error(replicas: Replicas) -> None:
    replicas.fail_partitions([P])

    assert replicas.apply_leader_and_isr([order(epoch=6)], 0.0) == {P: ErrorCode.KAFKA_STORAGE_ERROR}
    assert replicas.stop([StopInstruction(P, -2, True)]) == {P: ErrorCode.KAFKA_STORAGE_ERROR}
    assert replicas.logs == {P: ID}


def test_a_simulated_broker_rejects_requests_with_an_old_controller_or_broker_epoch(replicas: Replicas) -> None:
    assert replicas.check_epochs(10, 10, 3) is ErrorCode.NONE
    assert replicas.check_epochs(11, 10, 3) is ErrorCode.NONE  # the controller saw our registration first
    assert replicas.check_epochs(9, 10, 4) is ErrorCode.STALE_BROKER_EPOCH
    assert replicas.check_epochs(-1, 10, 2) is ErrorCode.STALE_CONTROLLER_EPOCH


# ---- ISRs


def proposal(replicas: Replicas, now_s: float, fetching: str, lagging: str = "") -> tuple[BrokerId, ...] | None:
    """The ISR that the leader proposes when these brokers fetch."""
    listed = replicas.propose(now_s, lambda b, p, epoch: b in ids(fetching), lambda b: True, ids(lagging))
    return next((replica.proposal for _, replica in listed), None)


def test_a_simulated_leader_removes_a_silent_follower_from_the_isr_after_the_lag_time(replicas: Replicas) -> None:
    assert proposal(replicas, 5.0, "2") is None
    assert proposal(replicas, LAG_S + 1, "2") == ids("12")


def test_a_simulated_leader_removes_a_lagging_follower_from_the_isr_at_once(replicas: Replicas) -> None:
    assert proposal(replicas, 1.0, "23", lagging="3") == ids("12")


def test_a_simulated_leader_adds_fetching_followers_to_the_isr_one_per_request() -> None:
    replicas = Replicas(ME, {})
    replicas.apply_leader_and_isr([order(isr="1")], 0.0)

    assert proposal(replicas, 0.0, "23") == ids("12")


def answer(error: ErrorCode = ErrorCode.NONE, epoch: int = 5, version: int = 4) -> AlterPartitionResponsePartitionData:
    """An AlterPartition response for the partition."""
    return AlterPartitionResponsePartitionData(
        partition_index=0, error_code=error, leader_epoch=epoch, partition_epoch=version, isr=ids("12")
    )


ANSWERS = {
    "taken": (answer(), (ids("12"), 4, None, False)),
    "ineligible: the last committed ISR stays": (
        answer(ErrorCode.INELIGIBLE_REPLICA),
        (ids("123"), 3, None, False),
    ),
    "the controller knows better: wait": (answer(ErrorCode.INVALID_UPDATE_VERSION), (ids("123"), 3, ids("12"), True)),
    "anything else: ask again": (answer(ErrorCode.UNKNOWN_SERVER_ERROR), (ids("123"), 3, ids("12"), False)),
    "of another leader epoch": (answer(epoch=4), (ids("123"), 3, ids("12"), False)),
}


@pytest.mark.parametrize(("given", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_a_simulated_leader_applies_each_alter_partition_response_like_kafka(
    replicas: Replicas, given: AlterPartitionResponsePartitionData, expected: tuple[object, ...]
) -> None:
    proposal(replicas, 1.0, "23", lagging="3")
    replica: Replica = replicas.hosted[P]

    replicas.on_alter_partition_response(P, replica, given)

    assert (replica.isr, replica.partition_epoch, replica.proposal, replica.is_refused) == expected


def test_a_newer_leader_and_isr_makes_a_simulated_leader_withdraw_its_proposed_isr(replicas: Replicas) -> None:
    proposal(replicas, 1.0, "23", lagging="3")
    replicas.apply_leader_and_isr([order(epoch=6)], 1.0)

    replicas.on_alter_partition_response(P, replicas.hosted[P], answer(epoch=6, version=9))

    assert replicas.hosted[P].isr == ids("123")
