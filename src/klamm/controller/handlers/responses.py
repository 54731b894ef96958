"""What brokers answered. Source: processLeaderAndIsrResponseReceived, processUpdateMetadataResponseReceived (3.9)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from klamm.controller.context import Partition
from klamm.controller.decisions.offline_dirs import DirChanges, diff_offline_dirs
from klamm.controller.events import (
    LeaderAndIsrResponseReceived,
    LogDirEventNotification,
    UpdateMetadataResponseReceived,
)
from klamm.controller.handlers.brokers import not_to_be_deleted, on_replicas_offline
from klamm.controller.handlers.condemned import on_leader_and_isr_answers
from klamm.controller.handlers.notifications import notifications
from klamm.controller.handlers.replicas import replicas_online
from klamm.controller.workbench import Workbench
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.telemetry.journal import by_topic
from klamm.wire.messages import LeaderAndIsrResponse
from klamm.zk.admin_znodes import decode_log_dir_event
from klamm.zk.znodes import LOG_DIR_EVENTS, MalformedZnode

ANSWER_CHUNK: Final = 5_000
OTHER_TOPIC: Final = "its log is of another topic of that name: an earlier one, or somebody changed the id in the znode"
_CODES: Final = frozenset(ErrorCode)
_NOTHING_WRONG: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.STALE_CONTROLLER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }  # the last one is a failed directory
)


async def on_leader_and_isr_response(bench: Workbench, event: LeaderAndIsrResponseReceived) -> None:
    """Only log directories are learnt from it: an error at the top, or any other code, says nothing about a replica.

    Other refusals are written down: until something changes that broker neither leads nor follows there.
    """
    registered = bench.context.registered.get(event.broker)
    if event.response.error_code != ErrorCode.NONE or registered is None or registered.epoch != event.broker_epoch:
        return  # what a broker said before it went tells nothing of what it is now
    changes = DirChanges([], [])
    async for chunk in bench.turns.over(_answers(bench, event.response), ANSWER_CHUNK):
        found = diff_offline_dirs(bench.context, event.broker, chunk)
        if event.broker in bench.context.condemned:
            await on_leader_and_isr_answers(bench, event.broker, chunk)
        changes.offline.extend(found.offline)
        changes.online.extend(found.online)
        _tell_refused_replicas(bench, event.broker, chunk)
    if not changes.offline and not changes.online:
        return
    failed = bench.context.offline_dirs.setdefault(event.broker, {})
    for p in changes.online:
        failed.pop(p, None)
    failed.update(dict.fromkeys(changes.offline))
    if not failed:
        del bench.context.offline_dirs[event.broker]
    bench.journal.found(bench.cause, failed_dirs=by_topic(changes.offline), healed_dirs=by_topic(changes.online))
    if changes.offline:
        await on_replicas_offline(bench, {event.broker: changes.offline})


def _tell_refused_replicas(bench: Workbench, broker: BrokerId, answers: Iterable[tuple[Partition, int]]) -> None:
    refused: dict[int, list[Partition]] = {}
    for partition, code in answers:
        if code not in _NOTHING_WRONG:
            refused.setdefault(code, []).append(partition)
    for code, partitions in refused.items():
        error = ErrorCode(code).name if code in _CODES else str(code)
        why = OTHER_TOPIC if code == ErrorCode.INCONSISTENT_TOPIC_ID else "the broker did not say why"
        bench.journal.refused(
            bench.cause, "LEADER_AND_ISR", why, broker=broker, error=error, partitions=by_topic(partitions)
        )


def _answers(bench: Workbench, response: LeaderAndIsrResponse) -> Iterator[tuple[Partition, int]]:
    """Partitions of topics that are gone by now are left out."""
    for error in response.partition_errors:
        if (partition := bench.context.partition(error.topic_name, error.partition_index)) is not None:
            yield partition, error.error_code
    for topic in response.topics:
        known = bench.context.topic_with_id(topic.topic_id)
        if known is None:
            continue
        for error in topic.partition_errors:
            if (partition := known.partitions.get(error.partition_index)) is not None:
                yield partition, error.error_code


async def on_update_metadata_response(bench: Workbench, event: UpdateMetadataResponseReceived) -> None:
    """Written down by the channel already; nothing follows from it."""


async def on_log_dir_event(bench: Workbench, event: LogDirEventNotification) -> None:
    """Ask the brokers about all their replicas: the answers tell which lie on a failed directory."""
    async with notifications(bench, LOG_DIR_EVENTS) as announced:
        brokers = sorted(_named(bench, announced.found))
        await replicas_online(bench, not_to_be_deleted(bench, {b: list(bench.context.replicas_on(b)) for b in brokers}))


def _named(bench: Workbench, events: Mapping[str, bytes | None]) -> set[BrokerId]:
    """The brokers that lost a log directory; an event nobody can read names none."""
    brokers = set()
    for name, payload in events.items():
        try:
            brokers.add(decode_log_dir_event(name, payload))
        except MalformedZnode as error:
            bench.journal.refused(bench.cause, "log directory event", str(error))
    return brokers
