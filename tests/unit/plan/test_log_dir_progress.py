"""The progress of moves between log directories, from what brokers have."""

import pytest

from klamm.model.ids import BrokerId, TopicPartition
from klamm.plan.log_dir_progress import LogDirState, ReplicaDirs, are_log_dirs_complete, log_dir_progress, wanted_paths

AT = TopicPartition("orders", 0)
ONE, TWO = BrokerId(1), BrokerId(2)
FOUND = {
    "in the wanted directory": (ReplicaDirs("/b", None), LogDirState.COMPLETE),
    "copied to the wanted directory": (ReplicaDirs("/a", "/b"), LogDirState.MOVING),
    "in another directory": (ReplicaDirs("/a", None), LogDirState.ELSEWHERE),
    "copied to another directory": (ReplicaDirs("/a", "/c"), LogDirState.ELSEWHERE),
    "copied away from the wanted directory": (ReplicaDirs("/b", "/a"), LogDirState.ELSEWHERE),
    "not there": (None, LogDirState.UNKNOWN),
}


@pytest.mark.parametrize(("there", "state"), FOUND.values(), ids=FOUND)
def test_a_log_directory_move_is_complete_only_where_nothing_else_moves(
    there: ReplicaDirs | None, state: LogDirState
) -> None:
    [progress] = log_dir_progress({AT: {ONE: "/b"}}, {ONE: {} if there is None else {AT: there}})

    assert (progress.state, progress.is_moving) == (state, state is LogDirState.MOVING)
    assert are_log_dirs_complete([progress]) == (state is LogDirState.COMPLETE)


def test_wanted_log_directories_are_grouped_by_broker() -> None:
    later = TopicPartition("orders", 1)

    assert wanted_paths({later: {TWO: "/c"}, AT: {TWO: "/b", ONE: "/a"}}) == {
        ONE: {AT: "/a"},
        TWO: {AT: "/b", later: "/c"},
    }
