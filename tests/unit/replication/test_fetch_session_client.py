"""What a follower tells the leader's session, and how it follows the answers."""

import uuid

from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.fetch_session_client import FetchPosition, FetchSessionClient, FetchSettings
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
