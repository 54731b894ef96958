"""What a follower tells the leader's session, and how it follows the answers."""

import uuid

from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.fetch_session_client import (
    ADDED_SHARE,
    MAX_OLD_NAMES,
    MIN_ADDED,
    FetchPosition,
    FetchSessionClient,
    FetchSettings,
)
from klamm.wire.messages import FetchRequest, FetchResponse

ID, OTHER = uuid.UUID(int=5), uuid.UUID(int=6)
A, B = TopicPartition("a", 0), TopicPartition("a", 1)


def want(client: FetchSessionClient, tp: TopicPartition, offset: int = 0, topic_id: uuid.UUID = ID) -> None:
    """Fetch the partition from this offset in the next request."""
    client.set_position(tp, FetchPosition(topic_id, offset, 3, 2, 0))


def build(client: FetchSessionClient) -> tuple[FetchRequest, int]:
    """The next request and its version."""
    request, version = client.build(FetchSettings(BrokerId(2)), 100)
    return FetchRequest.decode(request.encode(version), version), version


def named(request: FetchRequest) -> list[tuple[int, int]]:
    """The partitions and offsets in a request."""
    return [(p.partition, p.fetch_offset) for t in request.topics for p in t.partitions]


def forgotten(request: FetchRequest) -> list[tuple[uuid.UUID, list[int]]]:
    """The topic ids and partitions that a request removes from the session."""
    return [(t.topic_id, list(t.partitions)) for t in request.forgotten_topics_data]


def ask(client: FetchSessionClient, session: int = 9, error: ErrorCode = ErrorCode.NONE) -> FetchRequest:
    """Build a request and apply a response to it."""
    request, _ = build(client)
    client.on_response(FetchResponse(error_code=error, session_id=session))
    return request


def session(request: FetchRequest) -> tuple[int, int]:
    """Session id and epoch of a request."""
    return request.session_id, request.session_epoch


def test_a_followers_first_fetch_is_full_and_later_fetches_name_only_changed_partitions() -> None:
    client = FetchSessionClient()
    want(client, A)
    want(client, B)
    first = ask(client)
    want(client, B, 7)
    second = ask(client)
    third = ask(client)

    assert (session(first), named(first)) == ((0, 0), [(0, 0), (1, 0)])
    assert (session(second), named(second)) == ((9, 1), [(1, 7)])
    assert (session(third), named(third)) == ((9, 2), [])
    assert len(client) == 2


def test_a_followers_fetch_carries_replica_id_epochs_and_size_limits() -> None:
    client = FetchSessionClient()
    want(client, A)
    request, version = build(client)
    partition = request.topics[0].partitions[0]

    assert version == 17
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 100)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10_485_760)
    assert request.topics[0].topic_id == ID
    assert (partition.current_leader_epoch, partition.last_fetched_epoch) == (3, 2)
    assert (partition.log_start_offset, partition.partition_max_bytes) == (0, 1_048_576)


def test_a_partition_without_topic_id_switches_the_fetch_session_to_version_12() -> None:
    client = FetchSessionClient()
    want(client, A)
    ask(client)
    want(client, B, topic_id=ZERO_ID)

    request, version = build(client)

    assert version == 12
    assert request.replica_id == 2
    assert session(request) == (9, 0)
    assert sorted(named(request)) == [(0, 0), (1, 0)]

    client.on_response(FetchResponse(session_id=10))
    want(client, B)
    request, version = build(client)
    assert (version, session(request)) == (17, (10, 0))


def test_a_removed_partition_is_listed_once_as_forgotten_in_the_fetch_session() -> None:
    client = FetchSessionClient()
    want(client, A)
    want(client, B)
    ask(client)
    client.forget(B)
    client.forget(TopicPartition("never told", 0))

    request = ask(client)

    assert forgotten(request) == [(ID, [1])]
    assert client.last_sent(B) is None
    assert forgotten(ask(client)) == []
    assert len(client) == 1


def test_a_partition_removed_and_readded_before_the_next_fetch_is_not_listed_as_forgotten() -> None:
    client = FetchSessionClient()
    want(client, A)
    ask(client)
    client.forget(A)
    want(client, A, 4)

    request = ask(client)

    assert (named(request), request.forgotten_topics_data) == ([(0, 4)], [])


def test_a_partition_removed_readded_and_removed_before_the_next_fetch_is_listed_as_forgotten() -> None:
    client = FetchSessionClient()
    want(client, A)
    want(client, B)
    ask(client)
    client.forget(B)
    want(client, B, 4)
    client.forget(B)

    request = ask(client)

    assert (named(request), forgotten(request)) == ([], [(ID, [1])])
    assert forgotten(ask(client)) == []


def test_a_partition_removed_and_readded_with_another_topic_id_is_forgotten_by_the_old_id() -> None:
    client = FetchSessionClient()
    want(client, A)
    ask(client)
    client.forget(A)
    want(client, A, topic_id=OTHER)

    request = ask(client)

    assert [t.topic_id for t in request.topics] == [OTHER]
    assert forgotten(request) == [(ID, [0])]


def test_a_recreated_topic_in_a_session_by_names_is_not_listed_as_forgotten() -> None:
    """The leader would remove the partition that the same request has just named."""
    client = FetchSessionClient()
    want(client, A)
    want(client, B, topic_id=ZERO_ID)
    ask(client)
    want(client, A, 3, topic_id=OTHER)

    request = ask(client)

    assert (named(request), forgotten(request)) == ([(0, 3)], [])


def test_a_recreated_topic_is_fetched_by_its_new_topic_id_and_the_old_forgotten() -> None:
    client = FetchSessionClient()
    want(client, A)
    ask(client)
    want(client, A, topic_id=OTHER)

    request = ask(client)

    assert [t.topic_id for t in request.topics] == [OTHER]
    assert forgotten(request) == [(ID, [0])]
    assert client.topic_name(OTHER) == "a"


def test_a_leader_without_a_free_session_slot_gets_full_fetches() -> None:
    client = FetchSessionClient()
    want(client, A)
    ask(client, session=0)

    assert session(request := ask(client, session=0)) == (0, 0)
    assert named(request) == [(0, 0)]


def test_a_fetch_response_with_session_id_0_makes_the_next_fetch_full() -> None:
    client = FetchSessionClient()
    want(client, A)
    ask(client)
    ask(client, session=0)

    assert session(ask(client)) == (0, 0)


def test_fetch_session_id_not_found_makes_the_followers_next_fetch_full() -> None:
    client = FetchSessionClient()
    want(client, A)
    ask(client)
    ask(client, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    request = ask(client)

    assert (session(request), named(request)) == ((0, 0), [(0, 0)])


def test_invalid_fetch_session_epoch_makes_the_followers_next_fetch_replace_the_session() -> None:
    client = FetchSessionClient()
    want(client, A)
    ask(client)
    ask(client, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)

    assert session(ask(client)) == (9, 0)


def test_a_lost_fetch_response_makes_the_next_fetch_replace_the_session() -> None:
    client = FetchSessionClient()
    want(client, A)
    ask(client)
    client.on_request_lost()

    assert session(ask(client)) == (9, 0)


def test_a_fetch_response_with_a_session_error_is_reported_as_containing_no_data() -> None:
    client = FetchSessionClient()

    assert client.on_response(FetchResponse(session_id=4))
    assert not client.on_response(FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH))


# ---- many partitions


def want_many(client: FetchSessionClient, count: int, start: int = 0) -> None:
    """Fetch partitions with these numbers from offset 0."""
    for number in range(start, start + count):
        want(client, TopicPartition("a", number))


def numbers_until_complete(client: FetchSessionClient, session: int = 9) -> list[list[int]]:
    """The partitions named by each request until one names none."""
    rounds: list[list[int]] = []
    while numbers := [number for number, _ in named(ask(client, session))]:
        rounds.append(numbers)
    return rounds


def test_many_partitions_are_added_to_the_fetch_session_over_several_requests() -> None:
    client = FetchSessionClient()
    want_many(client, 2 * MIN_ADDED + 5)

    assert len(client) == 2 * MIN_ADDED + 5
    rounds = numbers_until_complete(client)

    assert [len(numbers) for numbers in rounds] == [MIN_ADDED, MIN_ADDED, 5]
    assert [number for numbers in rounds for number in numbers] == list(range(2 * MIN_ADDED + 5))
    assert len(client) == 2 * MIN_ADDED + 5


def test_each_fetch_adds_a_share_of_very_many_partitions() -> None:
    client = FetchSessionClient()
    want_many(client, 10 * ADDED_SHARE * MIN_ADDED)

    rounds = numbers_until_complete(client)

    assert len(rounds[0]) == 10 * MIN_ADDED
    assert len(rounds) < 60


def test_a_fetch_names_changes_in_the_session_before_it_adds_partitions() -> None:
    client = FetchSessionClient()
    want_many(client, 2 * MIN_ADDED)
    ask(client)
    want(client, A, 7)

    request = ask(client)

    assert named(request)[:2] == [(0, 7), (MIN_ADDED, 0)]
    assert len(named(request)) == MIN_ADDED + 1


def test_a_fetch_that_adds_many_partitions_does_not_wait_at_the_leader() -> None:
    client = FetchSessionClient()
    want_many(client, MIN_ADDED + 1)

    assert [ask(client).max_wait_ms for _ in range(3)] == [0, 500, 500]


def test_a_leader_without_a_free_session_slot_gets_all_partitions_in_each_fetch_and_may_hold_it() -> None:
    client = FetchSessionClient()
    want_many(client, 2 * MIN_ADDED)
    ask(client, session=0)

    for _ in range(2):
        request = ask(client, session=0)
        assert (session(request), len(named(request)), request.max_wait_ms) == ((0, 0), 2 * MIN_ADDED, 500)
    ask(client)
    assert named(ask(client)) == []


def test_a_lost_fetch_response_starts_a_session_that_grows_again() -> None:
    client = FetchSessionClient()
    want_many(client, 2 * MIN_ADDED)
    numbers_until_complete(client)
    want(client, TopicPartition("a", 3), 8)
    client.on_request_lost()

    first = ask(client)

    assert (session(first), len(named(first)), (3, 8) in named(first)) == ((9, 0), MIN_ADDED, True)
    assert client.last_sent(TopicPartition("a", 2 * MIN_ADDED - 1)) is None
    assert [len(numbers) for numbers in numbers_until_complete(client)] == [MIN_ADDED]


def test_a_partition_that_waits_to_be_added_again_is_removed_from_the_session_meanwhile() -> None:
    """The leader would answer for its old leader epoch."""
    client = FetchSessionClient()
    want(client, A)
    ask(client)
    client.forget(A)
    want_many(client, MIN_ADDED, start=1)
    want(client, A, 4)

    request = ask(client)

    assert (forgotten(request), client.last_sent(A)) == ([(ID, [0])], None)
    assert named(ask(client)) == [(0, 4)]


def test_a_partition_that_waits_to_be_added_can_be_removed() -> None:
    client = FetchSessionClient()
    want_many(client, MIN_ADDED + 1)
    client.forget(TopicPartition("a", MIN_ADDED))

    assert [len(numbers) for numbers in numbers_until_complete(client)] == [MIN_ADDED]
    assert len(client) == MIN_ADDED


def test_the_names_of_deleted_topics_are_not_kept_for_ever() -> None:
    client = FetchSessionClient()
    want(client, A)
    for number in range(10 * MAX_OLD_NAMES):
        topic_id = uuid.UUID(int=1_000 + number)
        client.set_position(TopicPartition(f"t{number}", 0), FetchPosition(topic_id, 0, 3, 2, 0))
        client.forget(TopicPartition(f"t{number}", 0))

    kept = sum(client.topic_name(uuid.UUID(int=1_000 + number)) is not None for number in range(10 * MAX_OLD_NAMES))

    assert kept <= MAX_OLD_NAMES + 2
    assert client.topic_name(ID) == "a"
