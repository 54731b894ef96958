"""Start, follow and cancel reassignments of a cluster."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from klamm.cli.admin.client import Admin, CannotAsk
from klamm.cli.admin.cluster import read_cluster, read_moves
from klamm.cli.admin.configs import change_configs, read_configs
from klamm.cli.admin.refusals import Refusal
from klamm.cli.output import ProgressLine
from klamm.config.dynamic_keys import REASSIGNMENT_RATES, THROTTLED_REPLICAS
from klamm.config.entities import BROKER, TOPIC
from klamm.model.assignment import ReplicaAssignment
from klamm.model.cluster import Cluster
from klamm.model.errors import ErrorCode, KlammError, UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.plan.progress import MoveState, PartitionProgress, is_over, progress_of
from klamm.plan.throttles import (
    Changes,
    plan_copies,
    plan_log_dir_throttle,
    plan_removal,
    plan_throttle,
    throttled_entities,
)
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

_CHUNK: Final = 5_000
_POLL_S: Final = 0.5
_MAX_POLLS: Final = 10
Replicas = tuple[BrokerId, ...]
Assignment = Mapping[TopicPartition, Replicas]


class Started(NamedTuple):
    current: Assignment
    """The replicas before, for a rollback."""
    begun: list[TopicPartition]
    refused: list[Refusal]


async def current_assignment(admin: Admin, wanted: Assignment) -> dict[TopicPartition, Replicas]:
    """Read the current replicas of these partitions. Raises UsageError for missing partitions and dead brokers.

    A dead broker that has a replica may keep it, as the controller allows: a plan leaves such replicas where they are.
    """
    cluster = await read_cluster(admin, sorted({at.topic for at in wanted}))
    found = cluster.partitions
    if absent := [at for at in wanted if at not in found]:
        raise UsageError(
            f"Partition {absent[0]} does not exist ({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name}). Remove it from the "
            "file."
        )
    added = [b for at, replicas in wanted.items() for b in replicas if b not in found[at].replicas]
    if unknown := [b for b in added if b not in cluster.brokers]:
        raise UsageError(_not_alive_text("--reassignment-json-file", unknown, cluster))
    return {at: found[at].replicas for at in wanted}


def _not_alive_text(option: str, brokers: Sequence[BrokerId], cluster: Cluster) -> str:
    """The error message for an option that names a dead broker."""
    alive = ", ".join(map(str, sorted(cluster.brokers)))
    return f"{option}: broker {brokers[0]} is not alive. Live brokers: {alive}."


async def start(
    admin: Admin, wanted: Assignment, current: Assignment, throttle: int | None, additional: bool
) -> Started:
    """Set the throttle, then start the reassignment; where none of it begins, remove the throttle again.

    Raises KlammError if another one runs, unless `additional`.
    """
    moving = await read_moves(admin)
    if moving and not additional:
        raise KlammError(
            f"{len(moving)} partitions are already being reassigned ({ErrorCode.REASSIGNMENT_IN_PROGRESS.name}). Wait, "
            "cancel them, or pass --additional to add yours; the throttle then applies to all."
        )
    if throttle is not None:
        await admin.look()
        refused = await change_configs(
            admin, plan_throttle(plan_copies(wanted, current, moving), throttle, admin.brokers)
        )
        if refused:
            return Started(current, [], [*refused, *await _unthrottle_unless_moving(admin, wanted)])
    refused = await reassign(admin, wanted)
    names = {r.subject for r in refused}
    begun = [at for at in sorted(wanted) if str(at) not in names]
    if throttle is not None and not begun:
        refused += await _unthrottle_unless_moving(admin, wanted)
    return Started(current, begun, refused)


async def _unthrottle_unless_moving(admin: Admin, wanted: Assignment) -> list[Refusal]:
    """Remove the throttle of a reassignment that did not begin, unless another one runs; returns the refusals."""
    if await read_moves(admin):
        return []
    return (await unthrottle(admin, {at.topic for at in wanted}))[1]


async def reassign(admin: Admin, wanted: Mapping[TopicPartition, Replicas | None]) -> list[Refusal]:
    """Send the reassignments in chunks, and return what was refused; None as replicas cancels a reassignment."""
    refused: list[Refusal] = []
    progress = ProgressLine()
    ordered = sorted(wanted)
    for begin in range(0, len(ordered), _CHUNK):
        refused += await _send_reassignments(admin, {at: wanted[at] for at in ordered[begin : begin + _CHUNK]})
        if len(ordered) > _CHUNK:
            progress.show(f"requested {min(begin + _CHUNK, len(ordered)):,} of {len(ordered):,} partitions")
    progress.clear()
    return refused


async def _send_reassignments(admin: Admin, wanted: Mapping[TopicPartition, Replicas | None]) -> list[Refusal]:
    """Send one AlterPartitionReassignments to the controller. Returns the rejected partitions."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for at, replicas in wanted.items():
        topics.setdefault(at.topic, []).append(ReassignablePartition(at.partition, replicas))
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=admin.left_ms, topics=[ReassignableTopic(name, listed) for name, listed in topics.items()]
    )
    answer = await admin.ask_controller(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
    if answer.error_code:
        return [Refusal(str(at), answer.error_code, answer.error_message) for at in wanted]
    return [
        Refusal(f"{t.name}-{p.partition_index}", p.error_code, p.error_message)
        for t in answer.responses
        for p in t.partitions
        if p.error_code
    ]


async def read_progress(admin: Admin, wanted: Assignment | None) -> tuple[list[PartitionProgress], bool]:
    """The progress of these partitions (None: of all running ones), and whether any reassignment is running.

    Brokers learn of the end a moment after the controller, so a partition with other replicas is read again.
    """
    for _ in range(_MAX_POLLS):
        moves = await read_moves(admin)
        partitions = {at: _target_replicas(move) for at, move in moves.items()} if wanted is None else wanted
        cluster = await read_cluster(admin, sorted({at.topic for at in partitions}))
        found = progress_of(partitions, cluster.partitions, moves, cluster.brokers)
        if all(s.state is not MoveState.ELSEWHERE for s in found) or not await admin.pause():
            break
    return found, bool(moves)


def _target_replicas(move: ReplicaAssignment) -> Replicas:
    """The replicas that a reassignment leads to, in the form of a plan."""
    return tuple(b for b in move.replicas if b not in move.removing)


async def wait_until_over(admin: Admin, wanted: Assignment) -> list[PartitionProgress]:
    """Wait until none of these partitions is being reassigned, and return their progress.

    Raises CannotAsk at the timeout.
    """
    progress = ProgressLine()
    while True:
        found, _ = await read_progress(admin, wanted)
        if is_over(found):
            progress.clear()
            return found
        done = sum(s.state is MoveState.COMPLETE for s in found)
        progress.show(f"{done:,} of {len(found):,} partitions complete; {admin.left_s:.0f} s left")
        if not await admin.pause(_POLL_S):
            progress.clear()
            raise CannotAsk(
                f"{len(found) - done:,} of {len(found):,} partitions were not complete before the timeout; the "
                "reassignment continues. `klamm reassign status` shows the progress, and removes the throttles "
                "at the end."
            )


async def cancel(
    admin: Admin, wanted: Collection[TopicPartition] | None, topics: Collection[str], preserve_throttles: bool
) -> tuple[list[TopicPartition], Changes, list[Refusal]]:
    """Cancel the reassignment of these partitions (None: all) and topics (empty: all), and remove their throttles.

    Topics that are still being reassigned keep their throttled replicas, and then brokers keep their rates.
    """
    moving = await read_moves(admin)
    chosen = [at for at in moving if (wanted is None or at in wanted) and (not topics or at.topic in topics)]
    refused = await reassign(admin, dict.fromkeys(chosen)) if chosen else []
    names = {r.subject for r in refused}
    cancelled = [at for at in chosen if str(at) not in names]
    if preserve_throttles:
        return cancelled, {}, refused
    going_on = {at.topic for at in moving.keys() - set(cancelled)}
    done = set(topics or (at.topic for at in (wanted or moving))) - going_on
    unset, refused_too = await unthrottle(admin, done, rates=not going_on)
    return cancelled, unset, [*refused, *refused_too]


async def throttle_log_dir_moves(admin: Admin, brokers: Iterable[BrokerId], bytes_per_s: int) -> list[Refusal]:
    """Limit what each of these brokers copies between its log directories; returns the refusals."""
    changes = plan_log_dir_throttle(brokers, bytes_per_s)
    return await change_configs(admin, changes) if changes else []


async def unthrottle(admin: Admin, topics: Iterable[str], *, rates: bool = True) -> tuple[Changes, list[Refusal]]:
    """Remove the throttles of these topics, and with `rates` those of every live broker. Returns what was removed."""
    await admin.look()
    wanted = throttled_entities(topics, admin.brokers if rates else ())
    of_topics, refused = await read_configs(admin, [e for e in wanted if e.type == TOPIC], THROTTLED_REPLICAS)
    of_brokers, refused_too = await read_configs(admin, [e for e in wanted if e.type == BROKER], REASSIGNMENT_RATES)
    changes = plan_removal(of_topics | of_brokers)
    gone = [r for r in (*refused, *refused_too) if r.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    return changes, [*gone, *(await change_configs(admin, changes) if changes else [])]
