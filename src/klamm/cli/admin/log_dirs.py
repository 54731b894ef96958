"""Read the log directories of brokers, and move replicas between those of one broker.

Source: ReassignPartitionsCommand.executeMoves, findLogDirMoveStates (3.9).
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Final

from klamm.cli.admin.client import Admin, CannotAsk
from klamm.cli.admin.refusals import Refusal
from klamm.cli.output import ProgressLine
from klamm.client.errors import code_name
from klamm.model.errors import ErrorCode, UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.plan.json_files import LogDirs
from klamm.plan.log_dir_progress import LogDirProgress, ReplicaDirs, log_dir_progress, wanted_paths
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)

_POLL_S: Final = 0.5
_NOT_THERE_YET: Final = (ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
Paths = Mapping[TopicPartition, str]


async def describe_log_dirs(
    admin: Admin,
    broker: BrokerId,
    partitions: Collection[TopicPartition] | None = None,
    *,
    awaits_start: bool = True,
) -> list[Any]:
    """The log directories of a broker as in DescribeLogDirs, with its replicas of these partitions (None: of all).

    Raises CannotAsk.
    """
    topics = None
    if partitions is not None:
        topics = [DescribableLogDirTopic(name, numbers) for name, numbers in _numbers_by_topic(partitions).items()]
    request = DescribeLogDirsRequest(topics=topics)
    answer: Any = await admin.ask_broker(broker, ApiKey.DESCRIBE_LOG_DIRS, request, awaits_start=awaits_start)
    if answer.error_code:
        raise CannotAsk(f"Broker {broker} did not list its log directories ({code_name(answer.error_code)}).")
    return list(answer.results)


async def check_log_dirs(admin: Admin, wanted: LogDirs, source: str) -> None:
    """Raise UsageError where a broker does not have a log directory that the file `source` names for it."""
    for broker, paths in wanted_paths(wanted).items():
        known = {found.log_dir: found.error_code for found in await describe_log_dirs(admin, broker, ())}
        for at, path in paths.items():
            if path not in known:
                raise UsageError(
                    f"{source}: {at} is to be in {path}, which is no log directory of broker {broker} "
                    f"({ErrorCode.LOG_DIR_NOT_FOUND.name}). Choose one of {', '.join(sorted(known))}."
                )
            if known[path]:
                raise UsageError(
                    f"{source}: {at} is to be in {path}, which is offline on broker {broker} "
                    f"({code_name(known[path])}). Repair it, or choose another one."
                )


async def prefer_log_dirs(admin: Admin, wanted: LogDirs) -> None:
    """Let brokers create replicas that they do not have yet in these log directories."""
    for broker, paths in wanted_paths(wanted).items():
        await _alter(admin, broker, paths)


async def start_log_dir_moves(admin: Admin, wanted: LogDirs) -> list[Refusal]:
    """Start to move replicas to these log directories; returns what was refused.

    Waits for replicas that the controller has yet to create, until the timeout.
    """
    refused: list[Refusal] = []
    left: dict[BrokerId, Paths] = {**wanted_paths(wanted)}
    while left:
        answers = await asyncio.gather(*(_alter(admin, broker, paths) for broker, paths in left.items()))
        waiting: dict[BrokerId, Paths] = {}
        is_last = not await admin.pause(_POLL_S) if _are_missing(answers) else True
        for (broker, paths), errors in zip(left.items(), answers, strict=True):
            again = {at: paths[at] for at, code in errors.items() if code in _NOT_THERE_YET}
            if again and not is_last:
                waiting[broker] = again
            refused += [
                Refusal(f"{at} on broker {broker}", code, f"cannot move to {paths[at]}")
                for at, code in errors.items()
                if code and at not in waiting.get(broker, ())
            ]
        left = waiting
    return refused


def _are_missing(answers: Collection[Mapping[TopicPartition, int]]) -> bool:
    """Whether some replica does not exist yet."""
    return any(code in _NOT_THERE_YET for errors in answers for code in errors.values())


async def read_log_dir_progress(admin: Admin, wanted: LogDirs) -> list[LogDirProgress]:
    """How far the moves to these log directories are. Raises CannotAsk where a broker does not answer."""
    brokers = wanted_paths(wanted)
    found = await asyncio.gather(*(_replica_dirs(admin, broker, paths) for broker, paths in brokers.items()))
    return log_dir_progress(wanted, dict(zip(brokers, found, strict=True)))


async def wait_until_moved(admin: Admin, wanted: LogDirs) -> list[LogDirProgress]:
    """Wait until no replica is being copied to its wanted log directory. Raises CannotAsk at the timeout."""
    progress = ProgressLine()
    while True:
        found = await read_log_dir_progress(admin, wanted)
        left = sum(p.is_moving for p in found)
        if not left:
            progress.clear()
            return found
        progress.show(f"{left:,} of {len(found):,} replicas move to other log directories; {admin.left_s:.0f} s left")
        if not await admin.pause(_POLL_S):
            progress.clear()
            raise CannotAsk(
                f"{left:,} of {len(found):,} replicas were not in their log directories before the timeout; the moves "
                "continue. `klamm reassign status` shows the progress."
            )


async def cancel_log_dir_moves(admin: Admin, wanted: LogDirs) -> tuple[list[LogDirProgress], list[Refusal]]:
    """Cancel the moves to these log directories that are under way. Returns them, and what was refused."""
    moving = [p for p in await read_log_dir_progress(admin, wanted) if p.is_moving]
    back: LogDirs = {}
    for p in moving:
        assert p.current is not None
        back.setdefault(p.at, {})[p.broker] = p.current
    return moving, await start_log_dir_moves(admin, back)


async def _alter(admin: Admin, broker: BrokerId, paths: Paths) -> dict[TopicPartition, int]:
    """Send one AlterReplicaLogDirs; returns the error code of each partition. Raises CannotAsk."""
    by_path: dict[str, list[TopicPartition]] = {}
    for at, path in paths.items():
        by_path.setdefault(path, []).append(at)
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path,
                [AlterReplicaLogDirTopic(name, numbers) for name, numbers in _numbers_by_topic(partitions).items()],
            )
            for path, partitions in by_path.items()
        ]
    )
    answer: Any = await admin.ask_broker(broker, ApiKey.ALTER_REPLICA_LOG_DIRS, request)
    return {
        TopicPartition(topic.topic_name, p.partition_index): p.error_code
        for topic in answer.results
        for p in topic.partitions
    }


async def _replica_dirs(
    admin: Admin, broker: BrokerId, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ReplicaDirs]:
    """The log directories of a broker's replicas of these partitions, and those of their copies."""
    current: dict[TopicPartition, str] = {}
    future: dict[TopicPartition, str] = {}
    for directory in await describe_log_dirs(admin, broker, partitions):
        for topic in directory.topics:
            for p in topic.partitions:
                found = future if p.is_future_key else current
                found[TopicPartition(topic.name, p.partition_index)] = directory.log_dir
    return {at: ReplicaDirs(current.get(at), future.get(at)) for at in {**current, **future}}


def _numbers_by_topic(partitions: Collection[TopicPartition]) -> dict[str, tuple[int, ...]]:
    """The partition numbers by topic."""
    topics: dict[str, list[int]] = {}
    for at in partitions:
        topics.setdefault(at.topic, []).append(at.partition)
    return {name: tuple(numbers) for name, numbers in topics.items()}
