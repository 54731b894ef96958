from typing import NamedTuple

import pytest
from tests.support.replica_cluster import ids

from klamm.model.ids import BrokerId
from klamm.replication.isr import (
    Committed,
    IsrState,
    PendingExpand,
    PendingShrink,
    may_join,
    next_high_watermark,
    out_of_sync,
)
from klamm.replication.replica import NEVER, RemoteReplica

NOW, LAG = 100_000.0, 30_000


def replica(broker: int, end: int, caught_up_ms: float = NEVER) -> RemoteReplica:
    made = RemoteReplica(BrokerId(broker))
    made.log_end_offset = end
    made.last_caught_up_ms = caught_up_ms
    return made


def test_the_maximal_isr_includes_members_of_pending_expansions_and_shrinks() -> None:
    assert Committed(ids(1, 2)).maximal == (1, 2)
    assert PendingExpand(ids(1, 2), BrokerId(3)).maximal == (1, 2, 3)
    assert PendingShrink(ids(1, 2, 3), frozenset({BrokerId(2)})).maximal == (1, 2, 3)


def test_a_proposed_isr_adds_the_new_member_or_omits_the_removed_members() -> None:
    assert PendingExpand(ids(1, 2), BrokerId(3)).proposed == (1, 2, 3)
    assert PendingShrink(ids(3, 2, 1), frozenset({BrokerId(2)})).proposed == (3, 1)


class HighWatermark(NamedTuple):
    state: IsrState
    replicas: list[RemoteReplica]
    expected: int
    alive: bool = True


HIGH_WATERMARKS = {
    "lowest end in the ISR": HighWatermark(Committed(ids(1, 2, 3)), [replica(2, 7), replica(3, 5)], 5),
    "leader alone": HighWatermark(Committed(ids(1)), [], 10),
    "outside and far behind does not count": HighWatermark(Committed(ids(1)), [replica(2, 3)], 10),
    "outside, caught up lately and alive is waited for": HighWatermark(
        Committed(ids(1)), [replica(2, 3, NOW - LAG)], 3
    ),
    "outside, caught up too long ago": HighWatermark(Committed(ids(1)), [replica(2, 3, NOW - LAG - 1)], 10),
    "outside, caught up but dead": HighWatermark(Committed(ids(1)), [replica(2, 3, NOW)], 10, alive=False),
    "one pending to join counts": HighWatermark(PendingExpand(ids(1), BrokerId(2)), [replica(2, 4)], 4),
    "one pending to leave still counts": HighWatermark(
        PendingShrink(ids(1, 2), frozenset({BrokerId(2)})), [replica(2, 4)], 4
    ),
    "a member not heard of yet holds it": HighWatermark(Committed(ids(1, 2)), [replica(2, -1)], -1),
    "a member that is not assigned holds it": HighWatermark(Committed(ids(1, 2, 3)), [replica(2, 7)], -1),
    "a follower ahead of the leader does not raise it": HighWatermark(Committed(ids(1, 2)), [replica(2, 12)], 10),
}


@pytest.mark.parametrize("case", HIGH_WATERMARKS.values(), ids=HIGH_WATERMARKS)
def test_the_high_watermark_is_the_lowest_log_end_of_isr_and_caught_up_replicas(case: HighWatermark) -> None:
    found = next_high_watermark(
        case.state,
        {r.broker_id: r for r in case.replicas},
        10,
        own_id=BrokerId(1),
        now_ms=NOW,
        lag_time_max_ms=LAG,
        is_alive=lambda b: case.alive,
    )
    assert found == case.expected


class Join(NamedTuple):
    expected: bool
    end: int = 10
    state: IsrState = Committed(ids(1))
    alive: bool = True
    epoch_start: int | None = 8


JOINS = {
    "at the high watermark and inside the epoch": Join(True),
    "below the high watermark": Join(False, end=9),
    "below the start of the leader's epoch": Join(False, epoch_start=11),
    "leader without an epoch start": Join(False, epoch_start=None),
    "a change is pending": Join(False, state=PendingExpand(ids(1), BrokerId(3))),
    "a shrink is pending": Join(False, state=PendingShrink(ids(1, 3), frozenset({BrokerId(3)}))),
    "member already": Join(False, state=Committed(ids(1, 2))),
    "not alive": Join(False, alive=False),
}


@pytest.mark.parametrize("case", JOINS.values(), ids=JOINS)
def test_only_a_live_caught_up_follower_may_join_the_isr_while_no_change_is_pending(case: Join) -> None:
    found = may_join(
        case.state, replica(2, case.end), alive=case.alive, high_watermark=10, epoch_start_offset=case.epoch_start
    )
    assert found is case.expected


def test_isr_members_behind_for_longer_than_replica_lag_time_are_out_of_sync() -> None:
    replicas = {
        BrokerId(2): replica(2, 10),  # level
        BrokerId(3): replica(3, 9, NOW - LAG),  # was level just in time
        BrokerId(4): replica(4, 9, NOW - LAG - 1),  # was not
        BrokerId(5): replica(5, 3, NEVER),  # not a member
    }
    state = Committed(ids(1, 2, 3, 4, 6))  # 6 is not assigned

    out = out_of_sync(state, replicas, 10, own_id=BrokerId(1), now_ms=NOW, lag_time_max_ms=LAG)

    assert out == {4, 6}
