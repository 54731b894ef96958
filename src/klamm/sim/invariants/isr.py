"""In-sync replicas, and what leaders are answered who want to change them."""

from collections.abc import Iterator
from typing import Any, Final

from klamm.controller.events import AlterPartitionReceived, BrokerChange, ResumeAfterFailure
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.history import History
from klamm.sim.history.trace import EventEnded, LeaderAndIsrApplied, ReplicaRole, ReplicaRolesChanged, StateWritten
from klamm.sim.invariants.epochs import leaders_write_isrs
from klamm.sim.nodes.controller_observer import BrokerKnowledge, ControllerKnowledge

_WITH_TOPIC_IDS: Final = 2
_WITH_BROKER_EPOCHS: Final = 3
_RECOVERED, _RECOVERING = 0, 1


def isr_is_never_empty(history: History, event: StateWritten) -> str | None:
    """An ISR keeps its last member, even if the partition has no leader."""
    return None if event.after.isr else f"{event.partition}: empty ISR"


def isr_is_within_replicas(history: History, event: StateWritten) -> str | None:
    """The ISR holds replicas of the partition, each once, and nobody else."""
    isr = event.after.isr
    if not set(isr) <= set(event.replicas) or len(set(isr)) != len(isr):
        return f"{event.partition}: ISR {isr} is not within replicas {event.replicas}"
    return None


def leaders_count_all_members(
    history: History, event: StateWritten | LeaderAndIsrApplied | ReplicaRolesChanged
) -> str | None:
    """A leader counts every broker in the ISR of its leader epoch as in sync, also during AlterPartition."""
    for p, broker, role in _roles(history, event):
        state = event.after if isinstance(event, StateWritten) else _state_of(history, p, role)
        if state is None or role.leader != broker:
            continue
        if (state.leader, state.leader_epoch) != (broker, role.leader_epoch):
            continue
        if uncounted := set(state.isr) - role.members:
            return f"{p}: leader {broker} counts {sorted(role.members)} as in sync, and not {uncounted} of {state}"
    return None


def _roles(
    history: History, event: StateWritten | LeaderAndIsrApplied | ReplicaRolesChanged
) -> Iterator[tuple[TopicPartition, BrokerId, ReplicaRole]]:
    """The roles of the leader's newest process, and those taken in this event."""
    if isinstance(event, StateWritten):
        key = event.partition, event.after.leader
        _, role = history.replicas.roles.get(key, (0, None))
        topic = history.topics.znodes.get(event.partition.topic)
        if role is not None and topic is not None and role.topic_id == topic.id:
            yield *key, role
    else:
        yield from ((p, event.broker, role) for p, role in event.roles.items())


def _state_of(history: History, p: TopicPartition, role: ReplicaRole) -> LeaderAndIsr | None:
    """The newest state of the very topic that the replica is of; None where none is known."""
    topic, versions = history.topics.znodes.get(p.topic), history.states.versions.get(p)
    return versions[-1] if versions and topic is not None and topic.id == role.topic_id else None


def refusals_end_with_orders(history: History, event: LeaderAndIsrApplied) -> str | None:
    """A leader whose ISR change was refused may ask again after a newer LeaderAndIsr."""
    for p, role in event.roles.items():
        before, after = event.epochs[p]
        if role.is_refused and before < after:
            return f"{p}: leader {event.broker} was refused in leader epoch {before}, and asks for nothing in {after}"
    return None


def newcomers_have_followed(history: History, event: StateWritten) -> str | None:
    """A broker enters an ISR only after it followed that leader in that leader epoch."""
    before, after = event.before, event.after
    if before is None or before.leader_epoch != after.leader_epoch:
        return None
    for broker in set(after.isr) - set(before.isr):
        if (event.partition, broker, after.leader, after.leader_epoch) not in history.replicas.followed:
            return f"{event.partition}: {broker} enters ISR {after.isr} without having followed {after.leader} in it"
    return None


def the_dead_have_left(history: History, event: EventEnded) -> str | None:
    """After a failover or a broker change, no ISR has a dead member beside others.

    Where ZooKeeper refused a write, this holds after the retry.
    """
    looked = event.term is None or isinstance(event.event, BrokerChange | ResumeAfterFailure)
    if event.is_cut_short or event.broker in history.controllers.refused or not looked:
        return None
    term = history.controllers.active  # where there was none when the event began, it has brought it about
    if term is None or (term.broker, term.incarnation) != (event.broker, event.incarnation):
        return None
    context = term.internals.context
    if history.controllers.has_ended(term) or not term.internals.store.client.is_alive or context.brokers_in_transition:
        return None
    for p in context.partitions():
        state = p.leadership
        if state is None or len(state.isr) == 1 or context.is_to_be_deleted(p):
            continue
        dead = [b for b in state.isr if b not in context.registered and _must_be_removed(history, event, p.key, b)]
        if dead:
            return f"{p.key}: {dead} are not registered, and {term} leaves them in ISR {state.isr}"
    return None


def _must_be_removed(history: History, event: EventEnded, p: TopicPartition, dead: BrokerId) -> bool:
    """Whether the controller had to remove this dead member from the ISR."""
    if not leaders_write_isrs(history):
        return True
    was_known = not isinstance(event.known, BrokerKnowledge) or dead in event.known.registered
    return (
        was_known
        and history.states.isr_entries[p, dead] <= history.controllers.began_at[event.broker, event.incarnation]
    )


# ---- AlterPartition


def _expected_error(
    known: ControllerKnowledge, topic: str | None, sender: int, asked: Any, version: int
) -> ErrorCode | None:
    """The error code that Kafka's table gives for this request; None if the change is to be written."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID if version >= _WITH_TOPIC_IDS else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = known.partitions.get((topic, asked.partition_index))
    if partition is None or partition.leadership is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    now = partition.leadership
    isr = _new_isr(asked, version)
    if asked.leader_epoch > now.leader_epoch or asked.partition_epoch > now.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if asked.leader_epoch < now.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if (sender, isr, asked.leader_recovery_state) == (now.leader, now.isr, int(now.recovery)):
        return ErrorCode.NONE
    if asked.partition_epoch < now.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    recovery = asked.leader_recovery_state
    begins_again = recovery == _RECOVERING and int(now.recovery) == _RECOVERED
    if sender != now.leader or not isr or recovery not in (_RECOVERED, _RECOVERING) or begins_again:
        return ErrorCode.INVALID_REQUEST
    if recovery == _RECOVERING and len(isr) > 1:
        return ErrorCode.INVALID_REQUEST
    if any(b not in known.live or b not in partition.replicas for b in isr):
        return ErrorCode.INELIGIBLE_REPLICA if version >= _WITH_TOPIC_IDS else ErrorCode.OPERATION_NOT_ATTEMPTED
    return None


def _new_isr(asked: Any, version: int) -> tuple[int, ...]:
    """The ISR that the request asks for, in whichever field its version has it."""
    if version >= _WITH_BROKER_EPOCHS:
        return tuple(member.broker_id for member in asked.new_isr_with_epochs)
    return tuple(asked.new_isr)


def _answers(event: EventEnded) -> Iterator[tuple[str | None, Any, Any]]:
    """(topic, what was asked, what was answered) for each partition of an AlterPartition that was judged."""
    asked = event.event
    assert isinstance(asked, AlterPartitionReceived)
    answered = {
        (t.topic_id if asked.version >= _WITH_TOPIC_IDS else t.topic_name, p.partition_index): p
        for t in asked.reply.result().topics
        for p in t.partitions
    }
    for topic in asked.request.topics:
        key = topic.topic_id if asked.version >= _WITH_TOPIC_IDS else topic.topic_name
        for data in topic.partitions:
            yield event.known.topics.get(key), data, answered.get((key, data.partition_index))


def alter_partition_follows_the_table(history: History, event: EventEnded) -> str | None:
    """AlterPartition is answered as Kafka's table has it, row by row, from what the controller knew."""
    asked = event.event
    if not isinstance(asked, AlterPartitionReceived):
        return None
    answer, known, request = asked.reply.result(), event.known, asked.request
    if known is None:
        wanted = ErrorCode.NOT_CONTROLLER
        return None if answer.error_code == wanted else f"{event.broker} is not active and answers {answer}"
    if answer.error_code in (ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR):
        return None  # deposed or cut off from ZooKeeper meanwhile
    is_stale = known.registered.get(request.broker_id) != request.broker_epoch
    if is_stale != (answer.error_code == ErrorCode.STALE_BROKER_EPOCH):
        return f"broker {request.broker_id}, epoch {request.broker_epoch} of {known.registered}, is answered {answer}"
    if is_stale:
        return None
    for topic, data, got in _answers(event):
        expected = _expected_error(known, topic, request.broker_id, data, asked.version)
        if got is None or not _is_expected_error(expected, got.error_code):
            return f"{topic}-{data.partition_index}: {data} should be answered {expected}, is {got}, knowing {known}"
    return None


def _is_expected_error(expected: ErrorCode | None, got: int) -> bool:
    """Whether the response's error code is the one that the table gives."""
    if expected is None:  # ZooKeeper had the last word
        return got in (ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.UNKNOWN_SERVER_ERROR)
    return got == expected


def refused_isr_changes_were_overtaken(history: History, event: EventEnded) -> str | None:
    """A change that ZooKeeper refused was overtaken by another one: what is there is not what was asked for."""
    asked = event.event
    if not isinstance(asked, AlterPartitionReceived) or event.known is None or asked.reply.result().error_code:
        return None
    for topic, data, got in _answers(event):
        if topic is None or got is None or got.error_code != ErrorCode.INVALID_UPDATE_VERSION:
            continue
        if _expected_error(event.known, topic, asked.request.broker_id, data, asked.version) is not None:
            continue
        versions = history.states.versions.get(TopicPartition(topic, data.partition_index), [])
        newest = versions[-1] if versions else None
        if newest and (newest.partition_epoch, newest.isr) == (data.partition_epoch + 1, _new_isr(data, asked.version)):
            return f"{topic}-{data.partition_index}: {data} is refused, although it was written as {newest}"
    return None


def alter_partition_tells_the_truth(history: History, event: EventEnded) -> str | None:
    """What a leader is told of its ISR was the content of the state znode in the version that the answer names."""
    asked = event.event
    if not isinstance(asked, AlterPartitionReceived) or event.known is None or asked.reply.result().error_code:
        return None
    for topic, data, got in _answers(event):
        if topic is None or got is None or got.error_code != ErrorCode.NONE:
            continue
        p = TopicPartition(topic, data.partition_index)
        told = got.leader_id, got.leader_epoch, tuple(got.isr), got.partition_epoch
        if not any(
            told == (v.leader, v.leader_epoch, v.isr, v.partition_epoch)
            for versions in history.states.incarnations_of(p)
            for v in versions[got.partition_epoch : got.partition_epoch + 1]
        ):
            return f"{p}: the leader is told {told}, which was never written"
    return None
