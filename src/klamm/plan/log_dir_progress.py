"""The progress of moves between the log directories of one broker: wanted and found directories in, a state out.

Source: ReassignPartitionsCommand.findLogDirMoveStates (3.9).
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from klamm.model.ids import BrokerId, TopicPartition
from klamm.plan.json_files import LogDirs


class ReplicaDirs(NamedTuple):
    current: str | None
    """The log directory of the replica; None where there is only a copy."""
    future: str | None
    """The log directory that the replica is being copied to; None where it does not move."""


class LogDirState(StrEnum):
    COMPLETE = "complete"
    MOVING = "in progress"
    ELSEWHERE = "not moving"  # the replica is in another log directory, and is not copied to the wanted one
    UNKNOWN = "no such replica"


class LogDirProgress(NamedTuple):
    at: TopicPartition
    broker: BrokerId
    state: LogDirState
    wanted: str
    current: str | None

    @property
    def is_moving(self) -> bool:
        """Whether the replica is being copied to the wanted log directory."""
        return self.state is LogDirState.MOVING


def wanted_paths(wanted: LogDirs) -> dict[BrokerId, dict[TopicPartition, str]]:
    """The wanted log directories by broker."""
    found: dict[BrokerId, dict[TopicPartition, str]] = {}
    for at, paths in sorted(wanted.items()):
        for broker, path in paths.items():
            found.setdefault(broker, {})[at] = path
    return dict(sorted(found.items()))


def log_dir_progress(
    wanted: LogDirs, found: Mapping[BrokerId, Mapping[TopicPartition, ReplicaDirs]]
) -> list[LogDirProgress]:
    """Return the progress of each replica with a wanted log directory, from what the brokers have."""
    progress: list[LogDirProgress] = []
    for broker, paths in wanted_paths(wanted).items():
        for at, path in paths.items():
            there = found[broker].get(at, ReplicaDirs(None, None))
            progress.append(LogDirProgress(at, broker, _state(there, path), path, there.current))
    return sorted(progress)


def _state(there: ReplicaDirs, path: str) -> LogDirState:
    """Return the state of one replica whose wanted log directory is `path`."""
    if there.current is None:
        return LogDirState.UNKNOWN
    if there.future == path:
        return LogDirState.MOVING
    if there.current == path and there.future is None:
        return LogDirState.COMPLETE
    return LogDirState.ELSEWHERE


def are_log_dirs_complete(progress: Iterable[LogDirProgress]) -> bool:
    """Whether all replicas are in their wanted log directories."""
    return all(p.state is LogDirState.COMPLETE for p in progress)
