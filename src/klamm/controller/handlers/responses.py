"""Responses of brokers to control requests.

Source: processLeaderAndIsrResponseReceived, processUpdateMetadataResponseReceived (3.9).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from klamm.controller.decisions.changes import DirChanges, diff_offline_dirs
from klamm.controller.events import (
    LeaderAndIsrResponseReceived,
    LogDirEventNotification,
    UpdateMetadataResponseReceived,
)
from klamm.controller.handlers.brokers import not_to_be_deleted, on_replicas_offline
from klamm.controller.handlers.notifications import notifications
from klamm.controller.handlers.pending_deletions import on_leader_and_isr_answers
from klamm.controller.handlers.replicas import replicas_online
from klamm.controller.steps import REQUEST_PARTITIONS
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.telemetry.journal import by_topic
from klamm.wire.messages import LeaderAndIsrResponse
from klamm.zk.admin_znodes import decode_log_dir_event
from klamm.zk.znodes import LOG_DIR_EVENTS, MalformedZnode

OTHER_TOPIC: Final = (
    "its log belongs to another topic of that name: an earlier one, or the topic id in the znode was changed"
)
"""The journal's reason for INCONSISTENT_TOPIC_ID."""
_KNOWN_CODES: Final = frozenset(ErrorCode)
"""The error codes that have a name."""
_EXPECTED_CODES: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.STALE_CONTROLLER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }  # the last one is a failed directory
)
"""Codes of a LeaderAndIsr response that are not journalled as refusals."""


async def on_leader_and_isr_response(term: TermContext, event: LeaderAndIsrResponseReceived) -> None:
    """Update which log directories failed, and journal other refusals.

    Error codes other than KAFKA_STORAGE_ERROR change no state. A refusal is journalled because the broker neither leads
    nor follows that partition until something changes.
    """
    registered = term.context.registered.get(event.broker)
    if event.response.error_code != ErrorCode.NONE or registered is None or registered.epoch != event.broker_epoch:
        return  # from an earlier registration of the broker
    changes = DirChanges([], [])
    async for chunk in term.slices.over(_answered_partitions(term, event.response), REQUEST_PARTITIONS):
        found = diff_offline_dirs(term.context, event.broker, chunk)
        if event.broker in term.context.pending_deletions:
            await on_leader_and_isr_answers(term, event.broker, chunk)
        changes.offline.extend(found.offline)
        changes.online.extend(found.online)
        _journal_refused_replicas(term, event.broker, chunk)
    if not changes.offline and not changes.online:
        return
    failed = term.context.offline_dirs.setdefault(event.broker, {})
    for p in changes.online:
        failed.pop(p, None)
    failed.update(dict.fromkeys(changes.offline))
    if not failed:
        del term.context.offline_dirs[event.broker]
    term.journal.found(term.cause, failed_dirs=by_topic(changes.offline), healed_dirs=by_topic(changes.online))
    if changes.offline:
        await on_replicas_offline(term, {event.broker: changes.offline})


def _journal_refused_replicas(term: TermContext, broker: BrokerId, answers: Iterable[tuple[Partition, int]]) -> None:
    """Journal the partitions that the broker refused, by error code."""
    refused: dict[int, list[Partition]] = {}
    for partition, code in answers:
        if code not in _EXPECTED_CODES:
            refused.setdefault(code, []).append(partition)
    for code, partitions in refused.items():
        error = ErrorCode(code).name if code in _KNOWN_CODES else str(code)
        why = OTHER_TOPIC if code == ErrorCode.INCONSISTENT_TOPIC_ID else "the broker gave no reason: see its log"
        term.journal.refused(
            term.cause, "LEADER_AND_ISR", why, broker=broker, error=error, partitions=by_topic(partitions)
        )


def _answered_partitions(term: TermContext, response: LeaderAndIsrResponse) -> Iterator[tuple[Partition, int]]:
    """The response's partitions with their error codes; those of removed topics are omitted."""
    for error in response.partition_errors:
        if (partition := term.context.partition(error.topic_name, error.partition_index)) is not None:
            yield partition, error.error_code
    for topic in response.topics:
        known = term.context.topic_with_id(topic.topic_id)
        if known is None:
            continue
        for error in topic.partition_errors:
            if (partition := known.partitions.get(error.partition_index)) is not None:
                yield partition, error.error_code


async def on_update_metadata_response(term: TermContext, event: UpdateMetadataResponseReceived) -> None:
    """Do nothing: the channel has already written the response to the journal."""


async def on_log_dir_event(term: TermContext, event: LogDirEventNotification) -> None:
    """Send LeaderAndIsr for all replicas of the announced brokers: the responses show the failed directories."""
    async with notifications(term, LOG_DIR_EVENTS) as announced:
        brokers = sorted(_brokers_with_failed_dirs(term, announced.found))
        await replicas_online(term, not_to_be_deleted(term, {b: list(term.context.replicas_on(b)) for b in brokers}))


def _brokers_with_failed_dirs(term: TermContext, events: Mapping[str, bytes | None]) -> set[BrokerId]:
    """The brokers that announced a failed log directory; unreadable notifications are journalled."""
    brokers = set()
    for name, payload in events.items():
        try:
            brokers.add(decode_log_dir_event(name, payload))
        except MalformedZnode as error:
            term.journal.refused(term.cause, "log directory event", str(error))
    return brokers
