"""Requests to begin, cancel or list reassignments. Source: processApiPartitionReassignment and related (3.9)."""

from collections.abc import Mapping

from klamm.controller.decisions.plans import Refusal
from klamm.controller.decisions.reassignment import ReassignmentPlan
from klamm.controller.events import (
    ApiPartitionReassignment,
    ListPartitionReassignments,
    PartitionReassignmentIsrChange,
    ReassignmentAnswer,
    ReassignmentList,
    TargetsInSync,
    ZkPartitionReassignment,
)
from klamm.controller.handlers.reassignment import advance_reassignments, begin_reassignments, complete_if_in_sync
from klamm.controller.handlers.tool_requests import REASSIGNMENT_LIST, change_list, remove_entries, unless_hidden
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.telemetry.journal import by_topic
from klamm.zk.admin_znodes import decode_reassignment
from klamm.zk.tool_requests import remove_unless_changed
from klamm.zk.znodes import REASSIGN_PARTITIONS, MalformedZnode


async def on_api_reassignment(term: TermContext, event: ApiPartitionReassignment) -> None:
    """Begin the requested reassignments; entries of the old tools' znode for the same partitions are removed."""
    plan = ReassignmentPlan()
    async for key, target in term.slices.each(event.targets.items()):
        plan.add_requested(term.context, key, target)
    if plan.begin:
        await remove_entries(term, lambda entry: term.context.partition(*entry[0]) in plan.begin)
    failed = await begin_reassignments(term, plan.begin)
    await term.refuse_requested("reassignment", plan.refused)
    plan.refused.update(_could_not_begin(failed))
    event.answer(ReassignmentAnswer(ErrorCode.NONE, plan.refused))


async def on_zk_reassignment(term: TermContext, event: ZkPartitionReassignment) -> None:
    """Begin the reassignments in the old tools' znode; refused entries are removed.

    Kafka may leave refused entries in the znode for ever (KAFKA-9478).
    """
    found = await term.store.tool_requests.read(REASSIGN_PARTITIONS)
    if found is None:
        return
    try:
        listed = decode_reassignment(found.payload)
    except MalformedZnode as error:
        term.journal.refused(term.cause, REASSIGN_PARTITIONS, f"{error}; removed")
        await change_list(term, REASSIGN_PARTITIONS, REASSIGNMENT_LIST, remove_unless_changed(found))
        return
    plan = ReassignmentPlan()
    async for key, replicas in term.slices.each(listed.items()):
        plan.add_from_znode(term.context, key, replicas)
    failed = await begin_reassignments(term, plan.begin)
    await term.refuse_requested("reassignment", plan.refused)
    refused = plan.refused | _could_not_begin(failed)
    if refused or not listed:
        await remove_entries(term, lambda entry: entry[0] in refused and entry[1] == listed[entry[0]])


async def resume_reassignments(term: TermContext) -> None:
    """After a failover, begin the reassignments in `/admin/reassign_partitions`, then advance those under way."""
    before = list(term.context.reassigning)
    asked = {p: p.assignment for p in before}
    await unless_hidden(term, REASSIGN_PARTITIONS, on_zk_reassignment(term, ZkPartitionReassignment()))
    untouched = [p for p in before if p in term.context.reassigning and p.assignment == asked[p]]
    if untouched:
        term.journal.found(term.cause, reassigning=by_topic(untouched))
    await advance_reassignments(term, untouched)


async def on_state_change(term: TermContext, event: PartitionReassignmentIsrChange) -> None:
    """Read the state znode that a leader of an old protocol version wrote, and complete if its target is in sync."""
    partition = term.context.partition(event.partition.topic, event.partition.partition)
    if partition is None or partition not in term.context.reassigning:
        return
    read = await term.store.read_states([partition], watch=True)
    term.refuse("ISR change", read.unreadable)
    if read.not_shown:
        raise KlammError(
            f"the state znode of {partition} cannot be read from ZooKeeper. See klamm audit --zookeeper."
        )  # nor tell of its next change
    term.apply_read(read.found)
    await complete_if_in_sync(term, read.found)


async def on_targets_in_sync(term: TermContext, event: TargetsInSync) -> None:
    """Complete the reassignments of these partitions."""
    found = (term.context.partition(p.topic, p.partition) for p in event.partitions)
    await complete_if_in_sync(term, [p for p in found if p is not None])


async def on_list_reassignments(term: TermContext, event: ListPartitionReassignments) -> None:
    """Answer with the reassignments in progress; other partitions are omitted."""
    context = term.context
    if event.partitions is None:
        found = list(context.reassigning)
    else:
        named = (context.partition(p.topic, p.partition) for p in event.partitions)
        found = [p for p in named if p is not None and p in context.reassigning]
    event.answer(ReassignmentList(ErrorCode.NONE, {p.key: p.assignment for p in found}))


def _could_not_begin(failed: Mapping[Partition, str]) -> dict[TopicPartition, Refusal]:
    """The refusal for each partition whose reassignment could not begin."""
    return {p.key: Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, why) for p, why in failed.items()}
