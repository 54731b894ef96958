"""ISR changes that leaders propose or announce. Source: KafkaController.scala (3.9), processAlterPartition."""

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from klamm.controller.decisions.alter_partition import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    Proposal,
    Verdict,
    check_sender,
    judge,
    plan_isr_changes,
)
from klamm.controller.decisions.plans import StatePlan
from klamm.controller.events import AlterPartitionReceived, IsrChangeNotification
from klamm.controller.handlers.foreign_states import adopt_foreign_states
from klamm.controller.handlers.notifications import notifications
from klamm.controller.handlers.reassignment import complete_if_in_sync
from klamm.controller.handlers.state_changes import States, StatesChanged, change_states
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition, Topic
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.model.topic_ids import ZERO_ID
from klamm.wire.messages import (
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from klamm.zk.admin_znodes import decode_isr_change
from klamm.zk.partition_states import StatesRead
from klamm.zk.znodes import ISR_CHANGES, MalformedZnode

FIRST_VERSION_WITH_BROKER_EPOCHS = 3


class _JudgedProposal(NamedTuple):
    """One partition of an AlterPartition request, with the verdict."""

    topic: AlterPartitionRequestTopicData
    number: int
    partition: Partition | None
    proposal: Proposal
    verdict: Verdict


async def on_alter_partition(term: TermContext, event: AlterPartitionReceived) -> None:
    """Check each partition, write accepted ISRs, notify all brokers, answer; then complete reassignments.

    A leader whose proposal lost to the write of another client is told of that state: it waits for a LeaderAndIsr.
    """
    request = event.request
    sender = check_sender(term.context, BrokerId(request.broker_id), request.broker_epoch)
    if sender is not ErrorCode.NONE:
        event.refuse(sender)
        return
    judged = [_judge(term, event, topic, p) for topic in request.topics for p in topic.partitions]
    changed = await _write(term, judged)
    term.refuse("alter-partition", _refused(judged))
    term.batch.add_metadata(term.context.registered, (a.partition for a in judged if a.partition is not None))
    await term.send_requests()
    event.answer(_response(judged, changed, event.version))
    await adopt_foreign_states(term, _lost_to_others(judged, changed))
    accepted = {a.partition: None for a in judged if a.partition in changed.reached or a.verdict.current is not None}
    await complete_if_in_sync(term, [p for p in accepted if p is not None])


async def _write(term: TermContext, judged: list[_JudgedProposal]) -> StatesChanged:
    """Write accepted ISRs; a proposal that lost a race is refused, and the leader proposes again.

    A write that ZooKeeper applied although its answer was lost counts as written. A refusal would leave the leader
    waiting for a LeaderAndIsr that nobody sends.
    """
    wanted = {a.partition: a.verdict.write for a in judged if a.partition is not None and a.verdict.write is not None}
    known = StatesRead({p: p.leadership for p in wanted if p.leadership is not None})

    async def plan(stored: States) -> StatePlan:
        """Return the ISRs to write, decided from the stored states."""
        return plan_isr_changes(stored, wanted)

    def apply(_: StatePlan, written: States) -> None:
        """Put the ISRs that ZooKeeper took into memory and journal."""
        term.apply_isr_changes(written)

    return await change_states(term, "alter-partition", known, plan, apply)


def _lost_to_others(judged: list[_JudgedProposal], changed: StatesChanged) -> list[Partition]:
    """The partitions whose accepted ISR was not written, because another client wrote the state."""
    accepted = (a.partition for a in judged if a.partition is not None and a.verdict.write is not None)
    return [p for p in accepted if p not in changed.reached and p not in changed.failed]


def _judge(
    term: TermContext,
    event: AlterPartitionReceived,
    topic: AlterPartitionRequestTopicData,
    data: AlterPartitionRequestPartitionData,
) -> _JudgedProposal:
    """Check one partition of an AlterPartition request against the controller's state."""
    proposal = Proposal(
        BrokerId(event.request.broker_id),
        data.leader_epoch,
        _new_isr(data, event.version),
        data.leader_recovery_state,
        data.partition_epoch,
        {BrokerId(member.broker_id): member.broker_epoch for member in data.new_isr_with_epochs},
    )
    known = _topic(term, topic, event.version)
    if known is None and event.version >= FIRST_VERSION_WITH_TOPIC_IDS:
        verdict = Verdict(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has the topic id of the request")
        return _JudgedProposal(topic, data.partition_index, None, proposal, verdict)
    partition = known.partitions.get(data.partition_index) if known else None
    verdict = judge(term.context, partition, proposal, event.version)
    return _JudgedProposal(topic, data.partition_index, partition, proposal, verdict)


def _topic(term: TermContext, topic: AlterPartitionRequestTopicData, version: int) -> Topic | None:
    """The topic of this entry: by name in old versions, by topic id in newer ones."""
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return term.context.topics.get(topic.topic_name)
    return term.context.topic_with_id(topic.topic_id)


def _new_isr(data: AlterPartitionRequestPartitionData, version: int) -> tuple[BrokerId, ...]:
    """The proposed ISR, from the field of this version."""
    if version >= FIRST_VERSION_WITH_BROKER_EPOCHS:
        return tuple(BrokerId(member.broker_id) for member in data.new_isr_with_epochs)
    return tuple(BrokerId(b) for b in data.new_isr)


def _refused(judged: list[_JudgedProposal]) -> dict[Partition, str]:
    """The refused partitions, each with its error code and reason for the journal."""
    return {
        a.partition: f"{a.verdict.error.name}: {a.verdict.why}"
        for a in judged
        if a.partition is not None and a.verdict.error is not ErrorCode.NONE
    }


def _response(judged: list[_JudgedProposal], changed: StatesChanged, version: int) -> AlterPartitionResponse:
    """The AlterPartition response for these partitions, grouped by topic."""
    topics: dict[tuple[str, uuid.UUID], AlterPartitionResponseTopicData] = {}
    for a in judged:
        key = (a.topic.topic_name, ZERO_ID) if version < FIRST_VERSION_WITH_TOPIC_IDS else ("", a.topic.topic_id)
        topic = topics.setdefault(key, AlterPartitionResponseTopicData(key[0], key[1], []))
        topic.partitions.append(_partition_response(a, changed))
    return AlterPartitionResponse(topics=list(topics.values()))


def _partition_response(judged: _JudgedProposal, changed: StatesChanged) -> AlterPartitionResponsePartitionData:
    """The response for one partition: its state, or an error."""
    partition, verdict = judged.partition, judged.verdict
    state = verdict.current
    error = verdict.error
    if partition is not None and verdict.write is not None:
        state = changed.reached.get(partition)
        if state is None:
            error = ErrorCode.UNKNOWN_SERVER_ERROR if partition in changed.failed else ErrorCode.INVALID_UPDATE_VERSION
    if state is None:
        return AlterPartitionResponsePartitionData(partition_index=judged.number, error_code=error)
    return AlterPartitionResponsePartitionData(
        partition_index=judged.number,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        leader_recovery_state=int(state.recovery),
        partition_epoch=state.partition_epoch,
    )


async def on_isr_change_notification(term: TermContext, event: IsrChangeNotification) -> None:
    """Read ISRs that leaders of an old protocol version wrote themselves, and notify all brokers."""
    async with notifications(term, ISR_CHANGES) as announced:
        named = _partitions_by_notification(term, announced.found)
        partitions = list(dict.fromkeys(p for listed in named.values() for p in listed))
        read = await term.store.read_states(partitions)
        term.refuse("ISR change", read.unreadable)
        for name, listed in named.items():
            if hidden := [p for p in listed if p in read.not_shown]:
                announced.not_shown[name] = f"{read.unreadable[hidden[0]]} for the state of {hidden[0]}"
        term.apply_read(read.found)
        if partitions:
            term.batch.add_metadata(term.context.registered, partitions)
            await term.send_requests()
            await complete_if_in_sync(term, read.found)


def _partitions_by_notification(term: TermContext, announced: Mapping[str, bytes | None]) -> dict[str, list[Partition]]:
    """The known partitions that each notification names; unreadable notifications are journalled."""
    named: dict[str, list[Partition]] = {}
    for name, payload in announced.items():
        try:
            listed = decode_isr_change(name, payload)
        except MalformedZnode as error:
            term.journal.refused(term.cause, "ISR change", str(error))
            continue
        named[name] = [p for topic, number in listed if (p := term.context.partition(topic, number)) is not None]
    return named
