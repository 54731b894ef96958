"""What leaders are answered that ask the controller for another ISR: Kafka's table, written down a second time.

Source: KafkaController.tryProcessAlterPartition (3.9).
"""

from collections.abc import Iterator
from typing import Any

from klamm.controller.events import AlterPartitionReceived
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import NO_EPOCH
from klamm.sim.history.history import History
from klamm.sim.history.isr_requests import FIRST_WITH_TOPIC_IDS, JudgedFrom, new_isr
from klamm.sim.history.trace import EventEnded

_RECOVERED, _RECOVERING = 0, 1


def _expected_errors(
    known: JudgedFrom, topic: str | None, sender: int, requested: Any, version: int
) -> frozenset[ErrorCode | None]:
    """The error codes that Kafka's rules allow for this partition; None stands for an ISR that is to be written.

    There are several where the controller may or may not know yet that a broker came or went.
    """
    expected = _expected_error(known, topic, sender, requested, version)
    if expected is not None:
        return frozenset((expected,))
    assert topic is not None
    replicas, now = known.partitions[topic, requested.partition_index]
    members = new_isr(requested, version)
    leader = now.leader if now is not None else None  # it has just asked, perhaps while it shuts down
    fit = {(b == leader or known.live[b]) if b in replicas else False for b in members}
    fit |= {_has_epoch(known, BrokerId(m.broker_id), m.broker_epoch) for m in requested.new_isr_with_epochs}
    ineligible = ErrorCode.INELIGIBLE_REPLICA if version >= FIRST_WITH_TOPIC_IDS else ErrorCode.OPERATION_NOT_ATTEMPTED
    if False in fit:
        return frozenset((ineligible,))
    return frozenset((ineligible, None)) if None in fit else frozenset((None,))


def _has_epoch(known: JudgedFrom, broker: BrokerId, epoch: int) -> bool | None:
    """Whether the controller has the broker with this broker epoch; None where it may know another one. -1 is any."""
    epochs = known.epochs[broker]
    if epoch == NO_EPOCH or epochs == {epoch}:
        return True
    return None if epoch in epochs else False


def _expected_error(
    known: JudgedFrom, topic: str | None, sender: int, requested: Any, version: int
) -> ErrorCode | None:
    """The error code that Kafka's rules give before live brokers are checked; None if there is none."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID if version >= FIRST_WITH_TOPIC_IDS else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = known.partitions.get((topic, requested.partition_index))
    if partition is None or partition.leadership is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    now = partition.leadership
    isr = new_isr(requested, version)
    if requested.leader_epoch > now.leader_epoch or requested.partition_epoch > now.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if requested.leader_epoch < now.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if (sender, isr, requested.leader_recovery_state) == (now.leader, now.isr, int(now.recovery)):
        return ErrorCode.NONE
    if requested.partition_epoch < now.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    recovery = requested.leader_recovery_state
    begins_again = recovery == _RECOVERING and int(now.recovery) == _RECOVERED
    if sender != now.leader or not isr or recovery not in (_RECOVERED, _RECOVERING) or begins_again:
        return ErrorCode.INVALID_REQUEST
    if recovery == _RECOVERING and len(isr) > 1:
        return ErrorCode.INVALID_REQUEST
    return None


def _answers(event: EventEnded, known: JudgedFrom) -> Iterator[tuple[str | None, Any, Any]]:
    """Yield (topic, request entry, response entry) for each partition of an AlterPartition that was handled."""
    requested = event.event
    assert isinstance(requested, AlterPartitionReceived)
    answered = {
        (t.topic_id if requested.version >= FIRST_WITH_TOPIC_IDS else t.topic_name, p.partition_index): p
        for t in requested.reply.result().topics
        for p in t.partitions
    }
    for topic in requested.request.topics:
        key = topic.topic_id if requested.version >= FIRST_WITH_TOPIC_IDS else topic.topic_name
        for data in topic.partitions:
            yield known.topics.get(key), data, answered.get((key, data.partition_index))


def _judged_from(history: History, event: EventEnded) -> JudgedFrom | None:
    """The facts from which the controller had to decide this AlterPartition; None where the event is another one."""
    if not isinstance(event.event, AlterPartitionReceived):
        return None
    return history.isr_requests.judged_from.get((event.broker, event.incarnation))


def alter_partition_follows_the_table(history: History, event: EventEnded) -> str | None:
    """AlterPartition is answered by Kafka's rules, from the state that ZooKeeper had when it was handled.

    A controller whose `/controller` was gone before that, and does not know it, may use the state of its own term:
    Kafka's controller answers from memory until it handles the end of its session, and the response to its last write
    (states of partitions, the deletion of a topic) may be lost together with the session.
    """
    requested, known = event.event, _judged_from(history, event)
    if not isinstance(requested, AlterPartitionReceived):
        return None
    answer, request = requested.reply.result(), requested.request
    if known is None:
        wanted = ErrorCode.NOT_CONTROLLER
        return None if answer.error_code == wanted else f"{event.broker} is not active and answers {answer}"
    if answer.error_code in (ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR):
        return None  # deposed or cut off from ZooKeeper meanwhile
    is_stale = answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    if known.sender_epochs == {request.broker_epoch} if is_stale else request.broker_epoch not in known.sender_epochs:
        epochs = sorted(known.sender_epochs)
        return f"broker {request.broker_id}, epoch {request.broker_epoch} of {epochs}, is answered {answer}"
    if is_stale or not known.is_newest:
        return None
    for topic, data, got in _answers(event, known):
        if topic is not None and _is_half_deleted(history, known, topic, data.partition_index):
            continue
        expected = _expected_errors(known, topic, request.broker_id, data, requested.version)
        if got is None or not any(_is_expected_error(e, got.error_code) for e in expected):
            return f"{topic}-{data.partition_index}: {data} should be answered {expected}, is {got}, from {known}"
    return None


def _is_half_deleted(history: History, known: JudgedFrom, topic: str, number: int) -> bool:
    """Whether the state is deleted and its topic is not; the controller then still has the state in memory."""
    stored = known.partitions.get((topic, number))
    return topic in history.topics.deletion_requests and stored is not None and stored.leadership is None


def _is_expected_error(expected: ErrorCode | None, got: int) -> bool:
    """Whether the response's error code is the one that the table gives."""
    if expected is None:  # ZooKeeper had the last word
        return got in (ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.UNKNOWN_SERVER_ERROR)
    return got == expected


def _answered_with(error: ErrorCode, known: JudgedFrom | None, event: EventEnded) -> Iterator[tuple[str, Any, Any]]:
    """Topic, request entry and response entry of each partition of an AlterPartition that was answered so."""
    requested = event.event
    if not isinstance(requested, AlterPartitionReceived) or known is None or requested.reply.result().error_code:
        return
    for topic, data, got in _answers(event, known):
        if topic is not None and got is not None and got.error_code == error:
            yield topic, data, got


def refused_isr_changes_lost_a_race(history: History, event: EventEnded) -> str | None:
    """An ISR change that ZooKeeper refused lost a race: the stored state differs from the proposed one."""
    requested, known = event.event, _judged_from(history, event)
    for topic, data, _ in _answered_with(ErrorCode.INVALID_UPDATE_VERSION, known, event):
        assert isinstance(requested, AlterPartitionReceived)
        assert known is not None
        if None not in _expected_errors(known, topic, requested.request.broker_id, data, requested.version):
            continue
        versions = history.states.versions.get(TopicPartition(topic, data.partition_index), [])
        newest = versions[-1] if versions else None
        if newest and (newest.partition_epoch, newest.isr) == (
            data.partition_epoch + 1,
            new_isr(data, requested.version),
        ):
            return f"{topic}-{data.partition_index}: {data} is refused, although it was written as {newest}"
    return None


def alter_partition_answers_match_zookeeper(history: History, event: EventEnded) -> str | None:
    """The state in an AlterPartition response was stored in the znode version that the response names."""
    for topic, data, got in _answered_with(ErrorCode.NONE, _judged_from(history, event), event):
        p = TopicPartition(topic, data.partition_index)
        answered_state = got.leader_id, got.leader_epoch, tuple(got.isr), got.partition_epoch
        if not any(
            answered_state == (v.leader, v.leader_epoch, v.isr, v.partition_epoch)
            for versions in history.states.incarnations_of(p)
            for v in versions[got.partition_epoch : got.partition_epoch + 1]
        ):
            return f"{p}: the leader is told {answered_state}, which was never written"
    return None
