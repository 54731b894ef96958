"""What clients are told of the cluster, and topics made on first use."""

import asyncio
import uuid
from typing import Any

import pytest
from tests.unit.broker.cluster_state import ORDERS_ID, broker, cache, partition, request, update

from klamm.broker.handlers.metadata import Metadata
from klamm.broker.metadata_cache import MetadataCache
from klamm.model.errors import ErrorCode
from klamm.runtime.time_slices import CountedSlices
from klamm.wire.api import ApiKey
from klamm.wire.messages import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic


class Creation:
    """Makes topics of any name but `taken`."""

    def __init__(self) -> None:
        self.made: list[str] = []

    async def create_on_first_use(self, name: str) -> ErrorCode:
        self.made.append(name)
        return ErrorCode.LEADER_NOT_AVAILABLE


@pytest.fixture
def creation() -> Creation:
    return Creation()


async def ask(
    creation: Creation,
    message: MetadataRequest,
    version: int = 12,
    known: MetadataCache | None = None,
    auto_create: bool = True,
    listener: str = "PLAINTEXT",
) -> MetadataResponse:
    handler = Metadata(known or cache(), "cluster", creation, auto_create, CountedSlices)  # type: ignore[arg-type]
    response = await handler.handle(request(ApiKey.METADATA, version, listener=listener), message)
    encoded = b"".join(response.encode_pieces(version))
    return response if isinstance(response, MetadataResponse) else MetadataResponse.decode(encoded, version)


def named(*names: str, **fields: bool) -> MetadataRequest:
    """A request for these topics."""
    return MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in names], **fields)


async def test_a_metadata_request_for_all_topics_lists_all_topics_and_creates_none(creation: Creation) -> None:
    response = await ask(creation, MetadataRequest(topics=None))

    assert [t.name for t in response.topics] == ["orders"]
    assert [(b.node_id, b.host) for b in response.brokers] == [(1, "h1"), (2, "h2"), (3, "h3")]
    assert (response.cluster_id, response.controller_id) == ("cluster", 1)
    assert creation.made == []


@pytest.mark.parametrize(("version", "expected"), [(0, ["orders"]), (1, [])])
async def test_an_empty_topic_list_in_a_metadata_request_means_all_topics_only_in_version_0(
    creation: Creation, version: int, expected: list[str]
) -> None:
    response = await ask(creation, MetadataRequest(topics=[]), version)

    assert [t.name for t in response.topics] == expected


async def test_metadata_of_a_topic_has_its_id_and_each_partitions_leader_and_epoch(creation: Creation) -> None:
    (topic,) = (await ask(creation, named("orders"))).topics

    assert topic.topic_id == ORDERS_ID
    assert [(p.partition_index, p.leader_id, p.leader_epoch, p.error_code) for p in topic.partitions] == [
        (0, 1, 4, 0),
        (1, 2, 4, 0),
    ]


async def test_metadata_by_topic_id_returns_the_topic_or_unknown_topic_id(creation: Creation) -> None:
    unknown = uuid.UUID(int=5)
    asked = [MetadataRequestTopic(name=None, topic_id=i) for i in (ORDERS_ID, unknown)]

    topics = (await ask(creation, MetadataRequest(topics=asked))).topics

    assert {(t.name, t.topic_id, t.error_code) for t in topics} == {
        ("orders", ORDERS_ID, ErrorCode.NONE),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    }


@pytest.mark.parametrize("version", [10, 11])
async def test_metadata_by_topic_id_before_version_12_gets_invalid_request(creation: Creation, version: int) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=ORDERS_ID)])

    (topic,) = (await ask(creation, asked, version)).topics

    assert topic.error_code == ErrorCode.INVALID_REQUEST


MISSING = {
    "auto-created on first use": (named("new", allow_auto_topic_creation=True), True, ErrorCode.LEADER_NOT_AVAILABLE),
    "client disallows auto creation": (
        named("new", allow_auto_topic_creation=False),
        True,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "broker disallows auto creation": (named("new"), False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "an illegal name": (named("a b"), False, ErrorCode.INVALID_TOPIC_EXCEPTION),
}


@pytest.mark.parametrize(("message", "auto_create", "expected"), MISSING.values(), ids=MISSING)
async def test_metadata_of_an_unknown_topic_has_an_error(
    creation: Creation, message: MetadataRequest, auto_create: bool, expected: ErrorCode
) -> None:
    (topic,) = (await ask(creation, message, auto_create=auto_create)).topics

    assert topic.error_code == expected
    assert bool(creation.made) == (expected is ErrorCode.LEADER_NOT_AVAILABLE)


def only(response: MetadataResponse) -> MetadataResponseTopic:
    """The only topic of the response."""
    (topic,) = response.topics
    return topic


async def test_metadata_of_a_partition_without_a_leader_has_leader_not_available(creation: Creation) -> None:
    known = cache(update({"orders": [partition(0, -1)]}))

    (found,) = only(await ask(creation, named("orders"), known=known)).partitions

    assert (found.leader_id, found.leader_epoch, found.error_code) == (-1, 4, ErrorCode.LEADER_NOT_AVAILABLE)


@pytest.mark.parametrize(
    ("version", "expected"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)]
)
async def test_metadata_of_a_leader_without_the_clients_listener_has_listener_not_found(
    creation: Creation, version: int, expected: ErrorCode
) -> None:
    known = cache(update({"orders": [partition(0, 1)]}, brokers=[broker(1), broker(2, "PLAINTEXT", "CLIENT")]))

    response = await ask(creation, named("orders"), version, known, listener="CLIENT")

    assert only(response).partitions[0].error_code == expected
    assert [b.node_id for b in response.brokers] == [2]


async def test_only_metadata_responses_of_version_0_omit_replicas_on_dead_brokers(creation: Creation) -> None:
    known = cache(update({"orders": [partition(0, 1)]}, brokers=[broker(1), broker(2)]))

    (old,) = only(await ask(creation, named("orders"), 0, known)).partitions
    (new,) = only(await ask(creation, named("orders"), 1, known)).partitions

    assert (old.error_code, old.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, (1, 2))
    assert (new.error_code, tuple(new.replica_nodes)) == (ErrorCode.NONE, (1, 2, 3))


async def test_metadata_contains_authorized_operations_only_on_request(creation: Creation) -> None:
    quiet = await ask(creation, named("orders"), 8)
    asked = await ask(
        creation,
        named("orders", include_cluster_authorized_operations=True, include_topic_authorized_operations=True),
        8,
    )

    assert quiet.cluster_authorized_operations == only(quiet).topic_authorized_operations == -(2**31)
    assert asked.cluster_authorized_operations > 0
    assert only(asked).topic_authorized_operations > 0


async def test_metadata_tells_no_authorized_operations_of_an_unknown_topic_id(creation: Creation) -> None:
    by_id = [MetadataRequestTopic(topic_id=uuid.UUID(int=5), name=None)]
    message = MetadataRequest(topics=by_id, include_topic_authorized_operations=True)

    unknown = only(await ask(creation, message))

    assert (unknown.error_code, unknown.topic_authorized_operations) == (ErrorCode.UNKNOWN_TOPIC_ID, -(2**31))


@pytest.mark.parametrize("version", range(13))
async def test_a_large_metadata_response_encoded_in_pieces_equals_one_encoded_at_once(
    creation: Creation, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"topic-{number}" for number in range(40)]
    states = [partition(n, n % 3 + 1) for n in range(5)]
    ids = {name: uuid.UUID(int=number + 1) for number, name in enumerate(names)}
    large = {"large": [partition(n, n % 5) for n in range(35)]}  # led by dead brokers, too
    known = cache(update(dict.fromkeys(names, states) | large, ids=ids))
    every = MetadataRequest(topics=[] if version == 0 else None)
    some = named("topic-7", "large", "missing", *(f"topic-{number}" for number in range(10, 30)))
    by_id = MetadataRequest(
        topics=[MetadataRequestTopic(name=None, topic_id=uuid.UUID(int=n)) for n in (*range(1, 30), 99, 1)]
    )
    for message in (every, some, by_id) if version >= 10 else (every, some):
        monkeypatch.undo()
        at_once = await ask(creation, message, version, known)
        monkeypatch.setattr("klamm.broker.handlers.metadata.MAX_ENTRIES_AT_ONCE", 10)
        monkeypatch.setattr("klamm.broker.handlers.metadata.ENTRIES_OF_A_PIECE", 10)
        expected = MetadataResponse.decode(at_once.encode(version), version)
        response = await ask(creation, message, version, known)
        for each in (expected, response):  # topics that do not exist may come first
            each.topics.sort(key=lambda topic: (topic.name or "", topic.topic_id))
        assert response == expected


async def test_metadata_of_one_large_topic_lets_other_callbacks_run(
    creation: Creation, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    encode = MetadataResponse.encode_elements

    def encode_elements(*arguments: Any) -> list[bytes]:
        sizes.append(len(arguments[1]))
        return encode(*arguments)

    monkeypatch.setattr(MetadataResponse, "encode_elements", encode_elements)
    known = cache(update({"large": [partition(n, 1) for n in range(3_500)]}))

    response = await ask(creation, named("large"), 12, known)

    assert [p.partition_index for p in response.topics[0].partitions] == list(range(3_500))
    assert sizes == [1_000, 1_000, 1_000, 500]


async def test_metadata_of_many_unknown_topics_is_made_in_time_slices(creation: Creation) -> None:
    count = 20_000
    passes = 0
    loop = asyncio.get_running_loop()

    def count_pass() -> None:
        nonlocal passes
        passes += 1
        handle[0] = loop.call_soon(count_pass)

    handle = [loop.call_soon(count_pass)]
    response = await ask(creation, named(*(f"missing-{n}" for n in range(count))), 12, auto_create=False)
    handle[0].cancel()

    assert {topic.error_code for topic in response.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(response.topics) == count
    assert passes >= 3 * count / 250  # to look at them, to describe them, to encode them; 250 elements of a pass


@pytest.mark.parametrize("count", [3, 3_000])
async def test_metadata_by_id_before_version_12_is_invalid_for_each_topic(creation: Creation, count: int) -> None:
    by_id = [MetadataRequestTopic(name=None, topic_id=uuid.UUID(int=7))]
    by_name = [MetadataRequestTopic(name=f"t-{n}") for n in range(count - 1)]

    response = await ask(creation, MetadataRequest(topics=by_name + by_id), 10)

    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST] * count


EXPECTED = {
    "by name": named("orders"),
    "by id": MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=ORDERS_ID)]),
    "all": MetadataRequest(topics=None),
}


@pytest.mark.parametrize("message", EXPECTED.values(), ids=EXPECTED)
async def test_a_metadata_request_waits_for_a_topic_that_the_controller_has_not_described_yet(
    creation: Creation, message: MetadataRequest
) -> None:
    known = MetadataCache("PLAINTEXT")
    known.expect_topics(["orders"])
    asking = asyncio.create_task(ask(creation, message, known=known))
    await asyncio.sleep(0)
    assert not asking.done()

    known.update(update({"orders": [partition(0, 1)]}))

    (topic,) = (await asking).topics
    assert (topic.name, topic.error_code, len(topic.partitions)) == ("orders", ErrorCode.NONE, 1)
    assert creation.made == []


async def test_a_metadata_request_for_other_topics_or_none_does_not_wait(creation: Creation) -> None:
    known = MetadataCache("PLAINTEXT")
    known.expect_topics(["orders"])

    assert not (await ask(creation, MetadataRequest(topics=[]), known=known)).topics
    (topic,) = (await ask(creation, named("unknown"), known=known, auto_create=False)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
