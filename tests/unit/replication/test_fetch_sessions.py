"""Each row of the fetch session table, and who is pushed out for whom."""

import asyncio
import random
import uuid
from typing import Any

import pytest

from klamm.model.errors import ErrorCode
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.fetch_data import FetchData, FetchPartition
from klamm.replication.fetch_sessions import (
    EVICTION_MS,
    MAX_EPOCH,
    FetchAnswer,
    FetchContext,
    FetchRequested,
    FetchSessions,
    FullFetch,
    IncrementalFetch,
    next_epoch,
)
from klamm.replication.fetch_waiter import CachedPartition
from klamm.runtime.eager import Rest, first_step
from klamm.runtime.time_slices import PIECE, CountedSlices

ID = uuid.UUID(int=5)


class Time:
    now_ms = 1_000.0

    def __call__(self) -> float:
        return self.now_ms


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def sessions(time: Time) -> FetchSessions:
    return FetchSessions(random.Random(1), time, slots=3)


def wanted(
    partition: int = 0, offset: int = 0, topic: str | None = "t", topic_id: uuid.UUID = ZERO_ID
) -> FetchPartition:
    """A partition in a fetch request."""
    return FetchPartition(topic, topic_id, partition, offset, 1000)


def requested(*partitions: FetchPartition, session: int = 0, epoch: int = 0, **more: Any) -> FetchRequested:
    return FetchRequested(partitions, session, epoch, **more)


def told(high_watermark: int = 10, **more: Any) -> FetchData:
    """The data of a partition in a response."""
    return FetchData(high_watermark=high_watermark, log_start_offset=0, **more)


def answered(context: FetchContext, results: dict[CachedPartition, FetchData]) -> FetchAnswer:
    """The answer of a fetch that is too small to yield to the loop."""
    found = first_step(context.answer(results, CountedSlices()))
    assert isinstance(found, FetchAnswer)
    return found


def answer(context: FetchContext, data: FetchData | dict[int, FetchData] | None = None) -> FetchAnswer:
    """Answers everything changed, the way a fetch does: what is settled is not changed any more."""
    results = {}
    for cached in list(context.waiter.changed):
        number = cached.request.partition
        results[cached] = data.get(number, told()) if isinstance(data, dict) else (data or told())
        if results[cached].settled:
            del context.waiter.changed[cached]
    found = answered(context, results)
    first_step(context.free(CountedSlices()))
    return found


def opened_or_error(sessions: FetchSessions, request: FetchRequested) -> FetchContext | ErrorCode:
    """What a request gets that is too small to yield to the loop."""
    context = first_step(sessions.open(request, CountedSlices()))
    assert not isinstance(context, Rest)
    return context


def opened(sessions: FetchSessions, request: FetchRequested) -> FetchContext:
    context = opened_or_error(sessions, request)
    assert isinstance(context, FetchContext)
    return context


def create(sessions: FetchSessions, *partitions: FetchPartition, **more: Any) -> int:
    """Create a session; its id."""
    return answer(opened(sessions, requested(*(partitions or (wanted(),)), **more)), told(settled=True)).session_id


def named(found: FetchAnswer) -> list[int]:
    """The partition numbers in an answer."""
    return [w.request.partition for w, _ in found.partitions]


def test_the_first_full_fetch_creates_a_fetch_session(sessions: FetchSessions) -> None:
    context = opened(sessions, requested(wanted(0), wanted(1)))
    found = answer(context)

    assert isinstance(context, FullFetch)
    assert found.session_id > 0
    assert named(found) == [0, 1]
    session = sessions.get(found.session_id)
    assert session is not None
    assert session.epoch == 1
    assert (len(sessions), sessions.partition_count) == (1, 2)


def test_a_full_fetch_with_a_session_id_replaces_that_fetch_session(sessions: FetchSessions) -> None:
    old = create(sessions)
    new = create(sessions, session=old)

    assert new not in (0, old)
    assert sessions.get(old) is None
    assert len(sessions) == 1


@pytest.mark.parametrize("with_session", [False, True])
def test_a_fetch_with_the_final_epoch_closes_its_fetch_session(sessions: FetchSessions, with_session: bool) -> None:
    old = create(sessions) if with_session else 0

    found = answer(opened(sessions, requested(wanted(), session=old, epoch=-1)))

    assert (found.session_id, named(found)) == (0, [0])
    assert len(sessions) == 0


def test_an_incremental_fetch_of_an_unknown_session_gets_fetch_session_id_not_found(sessions: FetchSessions) -> None:
    assert opened_or_error(sessions, requested(session=9, epoch=1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_incremental_fetch_with_a_wrong_epoch_gets_invalid_fetch_session_epoch(sessions: FetchSessions) -> None:
    session = create(sessions)

    assert opened_or_error(sessions, requested(session=session, epoch=2)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert isinstance(opened_or_error(sessions, requested(session=session, epoch=1)), IncrementalFetch)
    assert opened_or_error(sessions, requested(session=session, epoch=1)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert isinstance(opened_or_error(sessions, requested(session=session, epoch=2)), IncrementalFetch)


@pytest.mark.parametrize("by_id", [False, True])
def test_a_fetch_session_by_topic_id_rejects_a_fetch_by_name_and_the_reverse(
    sessions: FetchSessions, by_id: bool
) -> None:
    session = create(sessions, uses_topic_ids=by_id)

    refused = opened_or_error(sessions, requested(session=session, epoch=1, uses_topic_ids=not by_id))

    assert refused is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_fetch_session_epoch_wraps_from_the_maximum_to_1() -> None:
    assert next_epoch(0) == 1
    assert next_epoch(MAX_EPOCH - 1) == MAX_EPOCH
    assert next_epoch(MAX_EPOCH) == 1


def test_an_incremental_fetch_reads_only_changed_partitions(sessions: FetchSessions) -> None:
    session = create(sessions, wanted(0), wanted(1), wanted(2))

    context = opened(sessions, requested(wanted(1, offset=5), session=session, epoch=1))

    assert [w.request for w in context.waiter.changed] == [wanted(1, offset=5)]


def test_an_incremental_fetch_response_contains_only_changed_partitions(sessions: FetchSessions) -> None:
    session = create(sessions, *(wanted(p) for p in range(6)))
    context = opened(sessions, requested(*(wanted(p) for p in range(6)), session=session, epoch=1))

    found = answer(
        context,
        {
            1: told(records=b"x"),
            2: told(high_watermark=11),
            3: told()._replace(log_start_offset=1),
            4: FetchData(ErrorCode.NOT_LEADER_OR_FOLLOWER),
            5: told(diverging=(1, 2)),
        },
    )

    assert named(found) == [1, 2, 3, 4, 5]


def test_an_incremental_fetch_response_does_not_repeat_an_unchanged_high_watermark(sessions: FetchSessions) -> None:
    session = create(sessions)
    first = answer(opened(sessions, requested(wanted(), session=session, epoch=1)), told(high_watermark=11))
    second = answer(opened(sessions, requested(wanted(), session=session, epoch=2)), told(high_watermark=11))

    assert (named(first), named(second)) == ([0], [])


def test_an_incremental_fetch_response_contains_a_partition_whose_error_has_cleared(sessions: FetchSessions) -> None:
    session = create(sessions)
    refused = FetchData(ErrorCode.NOT_LEADER_OR_FOLLOWER, log_start_offset=0)
    answer(opened(sessions, requested(wanted(), session=session, epoch=1)), refused)

    found = answer(opened(sessions, requested(session=session, epoch=2)), told())

    assert named(found) == [0]


def test_partitions_that_returned_data_are_read_last_in_the_sessions_next_fetch(sessions: FetchSessions) -> None:
    session = create(sessions, wanted(0), wanted(1), wanted(2))
    context = opened(sessions, requested(wanted(0), wanted(1), wanted(2), session=session, epoch=1))
    answer(context, {0: told(records=b"x"), 1: told(), 2: told()})

    context = opened(sessions, requested(session=session, epoch=2))

    assert [w.request.partition for w in context.waiter.changed] == [1, 2, 0]


def test_partitions_that_a_fetch_lists_as_forgotten_leave_the_session(sessions: FetchSessions) -> None:
    session = create(sessions, wanted(0), wanted(1))

    context = opened(
        sessions, requested(wanted(0, 3), session=session, epoch=1, forgotten=[("t", ZERO_ID, 1), ("t", ZERO_ID, 7)])
    )

    assert named(answer(context, told(high_watermark=99))) == [0]
    assert sessions.partition_count == 1


def test_a_fetch_session_without_partitions_is_closed(sessions: FetchSessions) -> None:
    session = create(sessions)

    found = answer(opened(sessions, requested(session=session, epoch=1, forgotten=[("t", ZERO_ID, 0)])))

    assert (found.error, found.session_id, found.partitions) == (ErrorCode.NONE, 0, [])
    assert len(sessions) == 0


def test_a_full_fetch_without_partitions_creates_no_session(sessions: FetchSessions) -> None:
    context = opened(sessions, requested())

    assert not context.has_partitions()
    assert answer(context).session_id == 0


def test_a_fetch_overtaken_by_a_newer_fetch_of_its_session_gets_invalid_session_epoch(sessions: FetchSessions) -> None:
    session = create(sessions)
    first = opened(sessions, requested(session=session, epoch=1))
    opened_or_error(sessions, requested(session=session, epoch=2))

    found = answered(first, {})

    assert (found.error, found.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session)


def test_a_fetch_session_with_topic_ids_identifies_a_partition_by_its_topic_id(sessions: FetchSessions) -> None:
    session = create(sessions, wanted(topic=None, topic_id=ID), uses_topic_ids=True)

    context = opened(sessions, requested(wanted(0, 4, "t", ID), session=session, epoch=1, uses_topic_ids=True))
    assert [w.request.topic for w in context.waiter.changed] == ["t"]
    context = opened(sessions, requested(wanted(0, 5, None, ID), session=session, epoch=2, uses_topic_ids=True))
    assert [w.request for w in context.waiter.changed] == [wanted(0, 5, "t", ID)]  # a name once known stays
    assert sessions.partition_count == 1


# ---- slots


def test_a_full_fetch_is_served_without_a_session_when_no_session_can_be_evicted(sessions: FetchSessions) -> None:
    for _ in range(3):
        create(sessions)

    found = answer(opened(sessions, requested(wanted(0), wanted(1))))

    assert found.session_id == 0
    assert named(found) == [0, 1]


def test_the_least_recently_used_stale_fetch_session_is_evicted(sessions: FetchSessions, time: Time) -> None:
    first, second, third = (create(sessions) for _ in range(3))
    time.now_ms += EVICTION_MS
    opened_or_error(sessions, requested(wanted(), session=first, epoch=1))
    time.now_ms += 1

    new = create(sessions)

    assert new > 0
    assert sessions.get(second) is None  # the one used least recently
    assert sessions.get(first) is not None
    assert sessions.get(third) is not None


def keep_using(sessions: FetchSessions, time: Time, *used: int) -> None:
    """Use these sessions while time passes, until all others are stale."""
    for epoch in (1, 2, 3):
        time.now_ms += EVICTION_MS / 2
        for session in used:
            assert isinstance(opened(sessions, requested(wanted(), session=session, epoch=epoch)), IncrementalFetch)


def test_a_new_fetch_session_evicts_an_older_session_with_fewer_partitions(sessions: FetchSessions, time: Time) -> None:
    big, small, other = create(sessions, wanted(0), wanted(1)), create(sessions), create(sessions, wanted(0), wanted(1))
    keep_using(sessions, time, big, small, other)

    assert create(sessions, wanted(0), wanted(1)) > 0
    assert sessions.get(small) is None
    assert sessions.get(big) is not None


def test_a_new_fetch_session_does_not_evict_a_session_with_more_partitions(sessions: FetchSessions, time: Time) -> None:
    used = [create(sessions, wanted(0), wanted(1)) for _ in range(3)]
    keep_using(sessions, time, *used)

    assert create(sessions, wanted(0)) == 0


def test_a_followers_fetch_session_evicts_a_consumers_session_at_once(sessions: FetchSessions) -> None:
    for _ in range(3):
        create(sessions, wanted(0), wanted(1))

    assert create(sessions, wanted(0), replica_id=2) > 0


def test_a_consumers_fetch_session_never_evicts_a_followers_session(sessions: FetchSessions, time: Time) -> None:
    used = [create(sessions, wanted(0), replica_id=2) for _ in range(3)]
    keep_using(sessions, time, *used)

    assert create(sessions, *(wanted(p) for p in range(50))) == 0
    assert create(sessions, wanted(0), wanted(1), replica_id=3) > 0  # a follower with more partitions does


def test_a_broker_configured_with_zero_fetch_session_slots_creates_no_sessions(time: Time) -> None:
    assert create(FetchSessions(random.Random(1), time, slots=0)) == 0


def test_closing_the_fetch_session_cache_removes_all_sessions(sessions: FetchSessions) -> None:
    create(sessions)
    create(sessions)

    sessions.close()

    assert len(sessions) == 0


async def test_a_large_fetch_stops_changing_its_session_when_a_newer_fetch_arrives(
    sessions: FetchSessions,
) -> None:
    session = create(sessions)
    many = requested(*map(wanted, range(10 * PIECE)), session=session, epoch=1)
    opening = asyncio.create_task(sessions.open(many, CountedSlices(PIECE // 2)))
    await asyncio.sleep(0)

    opened(sessions, requested(session=session, epoch=2))
    first = await opening

    assert 0 < sessions.partition_count < 3 * PIECE
    assert isinstance(first, FetchContext)
    assert answered(first, {}).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_what_a_superseded_fetch_recorded_as_sent_is_sent_by_the_next_one(sessions: FetchSessions) -> None:
    session = create(sessions)
    many = await sessions.open(
        requested(*map(wanted, range(3 * PIECE)), session=session, epoch=1), CountedSlices(PIECE // 2)
    )
    assert isinstance(many, FetchContext)
    found = {cached: told(11) for cached in many.waiter.changed}
    answering = asyncio.create_task(many.answer(found, CountedSlices(PIECE // 2)))
    await asyncio.sleep(0)
    later = opened(sessions, requested(session=session, epoch=2))

    assert (await answering).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH

    assert len((await later.answer(found, CountedSlices())).partitions) == len(found)


def test_a_fetch_that_puts_partitions_back_wakes_the_one_that_waits(sessions: FetchSessions) -> None:
    session = create(sessions)
    earlier = opened(sessions, requested(session=session, epoch=1))
    read = list(earlier.waiter.changed)
    earlier.waiter.changed.clear()
    later = opened(sessions, requested(session=session, epoch=2))
    later.waiter.is_woken = False

    earlier.put_back(read)

    assert (list(later.waiter.changed), later.waiter.is_woken) == (read, True)
