"""CreatePartitions and DeleteTopics: checks in Kafka's order, errors per topic, answers once our metadata shows it."""

import uuid
from collections.abc import Sequence

import pytest
from tests.support.memory_zookeeper import MemoryEnsemble
from tests.unit.broker.cluster_state import cache, partition, request, update

from klamm.broker.handlers.create_partitions import CreatePartitions
from klamm.broker.handlers.delete_topics import DeleteTopics
from klamm.broker.topic_creation import Refusal
from klamm.broker.topic_growth import TopicGrowth, plan_growth
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.model.topic_ids import ZERO_ID
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from klamm.zk import znodes
from klamm.zk.operations import Create, Set
from klamm.zk.store import Store

ORDERS = uuid.UUID(int=9)


class Cluster:
    """Topic `orders` on brokers 1 to 3, in ZooKeeper and in our metadata."""

    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.store = Store(self.ensemble.client())
        self.known = cache(update({"orders": [partition(0, 1), partition(1, 2)]}))
        self.is_active = True
        self.to_be_deleted: set[str] = set()
        self.left_out: set[BrokerId] = set()

    async def open(self) -> "Cluster":
        await self.store.create_top_level_paths()
        placed = {0: ReplicaAssignment(ids(1, 2)), 1: ReplicaAssignment(ids(2, 3))}
        await self.store.create_topic("orders", placed, ORDERS, {})
        return self

    def is_queued_for_deletion(self, topic: str) -> bool:
        return topic in self.to_be_deleted

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return "orders" if topic_id == ORDERS else None

    def assigned(self) -> dict[int, tuple[int, ...]]:
        """The replicas of each partition in ZooKeeper."""
        stored = znodes.decode_topic("orders", self.ensemble.nodes[znodes.topic_path("orders")].data)
        assert stored.topic_id == ORDERS
        return {n: a.replicas for n, a in stored.partitions.items()}

    async def grow(
        self, *topics: CreatePartitionsTopic, version: int = 3, timeout_ms: int = 1, validate_only: bool = False
    ) -> list[CreatePartitionsTopicResult]:
        growth = TopicGrowth(self.known, lambda: self.store, self.left_out)
        handler = CreatePartitions(self.known, growth, self)
        message = CreatePartitionsRequest(list(topics), timeout_ms, validate_only)
        response = await handler.handle(request(ApiKey.CREATE_PARTITIONS, version), message)
        response.encode(version)
        return response.results

    async def delete(
        self, *topics: str | uuid.UUID, version: int = 6, timeout_ms: int = 1, is_enabled: bool = True
    ) -> list[DeletableTopicResult]:
        handler = DeleteTopics(self.known, lambda: self.store, self, is_enabled)
        states = [
            DeleteTopicState(None, t) if isinstance(t, uuid.UUID) else DeleteTopicState(t, ZERO_ID) for t in topics
        ]
        names = [t for t in topics if isinstance(t, str)]
        message = DeleteTopicsRequest(states if version >= 6 else [], tuple(names) if version < 6 else (), timeout_ms)
        response = await handler.handle(request(ApiKey.DELETE_TOPICS, version), message)
        response.encode(version)
        return response.responses

    @property
    def marked(self) -> list[str]:
        """The topics marked for deletion."""
        return list(self.ensemble.nodes["/admin/delete_topics"].children)


@pytest.fixture
async def cluster() -> Cluster:
    return await Cluster().open()


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def to(count: int, lists: Sequence[Sequence[int]] | None = None, topic: str = "orders") -> CreatePartitionsTopic:
    """A CreatePartitions entry that raises the topic to this count."""
    chosen = None if lists is None else [CreatePartitionsAssignment(tuple(replicas)) for replicas in lists]
    return CreatePartitionsTopic(topic, count, chosen)


# ---- growth


async def test_create_partitions_answers_once_the_new_partitions_have_leaders(cluster: Cluster) -> None:
    cluster.known.update(update({"orders": [partition(2, 3), partition(3, 1)]}))

    [result] = await cluster.grow(to(4))

    assert result.error_code == ErrorCode.NONE
    assert cluster.assigned() == {0: (1, 2), 1: (2, 3), 2: (3, 1), 3: (1, 3)}


async def test_create_partitions_uses_the_brokers_of_a_given_assignment(cluster: Cluster) -> None:
    await cluster.grow(to(3, [(3, 1)]))

    assert cluster.assigned()[2] == (3, 1)


async def test_create_partitions_keeps_partitions_without_leaders_and_answers_request_timed_out(
    cluster: Cluster,
) -> None:
    for timeout_ms in (1, 0):
        [result] = await cluster.grow(to(len(cluster.assigned()) + 1), timeout_ms=timeout_ms)
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert len(cluster.assigned()) == 4


REFUSED = {
    "no such topic": (to(3, topic="nobody"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "fewer partitions": (to(1), ErrorCode.INVALID_PARTITIONS),
    "the same number of partitions": (to(2), ErrorCode.INVALID_PARTITIONS),
    "too many partitions": (to(2**31 - 1), ErrorCode.INVALID_PARTITIONS),
    "unknown brokers": (to(3, [(1, 9)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "too few replica lists": (to(4, [(1, 2)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "empty replica list": (to(3, [()]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "a broker twice": (to(3, [(1, 1)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "another replication factor": (to(3, [(1, 2, 3)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "count before the replica lists": (to(2, [(1, 1)]), ErrorCode.INVALID_PARTITIONS),
}


@pytest.mark.parametrize(("asked", "expected"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("validate_only", [False, True])
async def test_an_invalid_create_partitions_request_is_refused_with_a_reason_and_changes_nothing(
    cluster: Cluster, asked: CreatePartitionsTopic, expected: ErrorCode, validate_only: bool
) -> None:
    [result] = await cluster.grow(asked, validate_only=validate_only)

    assert (result.error_code, bool(result.error_message)) == (expected, True)
    assert len(cluster.assigned()) == 2


async def test_create_partitions_with_validate_only_writes_nothing_and_does_not_wait(cluster: Cluster) -> None:
    [result] = await cluster.grow(to(5), validate_only=True, timeout_ms=60_000)

    assert result.error_code == ErrorCode.NONE
    assert len(cluster.assigned()) == 2


async def test_create_partitions_refuses_a_topic_with_an_ongoing_reassignment(cluster: Cluster) -> None:
    moving = {0: ReplicaAssignment(ids(1, 2, 3), adding=ids(3))}
    cluster.ensemble.apply([Set(znodes.topic_path("orders"), znodes.encode_topic(ORDERS, moving))])

    [result] = await cluster.grow(to(5))

    assert result.error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS


async def test_create_partitions_refuses_duplicate_and_deleted_topics_and_brokers_that_are_not_controller(
    cluster: Cluster,
) -> None:
    [twice] = await cluster.grow(to(3), to(4))
    assert twice.error_code == ErrorCode.INVALID_REQUEST
    cluster.to_be_deleted.add("orders")
    [refused] = await cluster.grow(to(3))
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    cluster.is_active = False
    [elsewhere] = await cluster.grow(to(3))
    assert elsewhere.error_code == ErrorCode.NOT_CONTROLLER


async def test_create_partitions_retries_after_another_client_changed_the_topic(cluster: Cluster) -> None:
    written = cluster.store.client.set
    grown = {n: ReplicaAssignment(ids(1, 2)) for n in range(3)}

    async def overtaken(path: str, data: bytes | None, version: int = -1) -> object:
        cluster.store.client.set = written  # type: ignore[method-assign]
        cluster.ensemble.apply([Set(path, znodes.encode_topic(ORDERS, grown))])
        return await written(path, data, version)

    cluster.store.client.set = overtaken  # type: ignore[method-assign,assignment]
    await cluster.grow(to(4))

    assert len(cluster.assigned()) == 4
    assert cluster.assigned()[2] == (1, 2)


async def test_new_partitions_are_not_placed_on_controller_only_brokers(cluster: Cluster) -> None:
    cluster.left_out = {BrokerId(3)}
    await cluster.grow(to(8))

    assert {b for n, replicas in cluster.assigned().items() if n > 1 for b in replicas} == {1, 2}


# ---- deletion


async def test_delete_topics_answers_once_the_metadata_no_longer_has_the_topic(cluster: Cluster) -> None:
    deleting = cluster.known.wait_until
    gone = update({"orders": [partition(0, -2), partition(1, -2)]})

    async def controller_acts(holds: object, timeout_s: float) -> list[str]:
        cluster.known.update(gone)
        return await deleting(holds, timeout_s)  # type: ignore[arg-type]

    cluster.known.wait_until = controller_acts  # type: ignore[method-assign]
    [result] = await cluster.delete("orders", timeout_ms=60_000)

    assert (result.name, result.error_code) == ("orders", ErrorCode.NONE)
    assert cluster.marked == ["orders"]


async def test_delete_topics_by_id_deletes_the_topic_or_answers_unknown_topic_id(cluster: Cluster) -> None:
    known, unknown = await cluster.delete(ORDERS, uuid.UUID(int=5))

    assert (known.name, known.topic_id, known.error_code) == ("orders", ORDERS, ErrorCode.REQUEST_TIMED_OUT)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    assert cluster.marked == ["orders"]


@pytest.mark.parametrize("version", range(7))
async def test_a_topic_deletion_that_times_out_continues_and_can_be_requested_again(
    cluster: Cluster, version: int
) -> None:
    for timeout_ms in (0, 1):
        [result] = await cluster.delete("orders", version=version, timeout_ms=timeout_ms)
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert cluster.marked == ["orders"]


async def test_delete_topics_of_an_unknown_topic_is_refused(cluster: Cluster) -> None:
    cluster.known.update(update({"ghost": [partition(0, 1)]}))

    results = await cluster.delete("ghost", "nobody", "orders/partitions", "")

    assert [r.error_code for r in results] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 4
    assert cluster.marked == []


async def test_a_topic_that_never_had_a_leader_can_be_deleted(cluster: Cluster) -> None:
    await cluster.store.create_topic("never", {0: ReplicaAssignment(ids(9))}, uuid.UUID(int=8), {})

    [result] = await cluster.delete("never")

    assert (result.error_code, cluster.marked) == (ErrorCode.NONE, ["never"])


async def test_delete_topics_answers_unknown_topic_for_a_topic_known_only_to_zookeeper(cluster: Cluster) -> None:
    await cluster.store.create_topic("going", {0: ReplicaAssignment(ids(9))}, uuid.UUID(int=8), {})
    await cluster.delete("going")

    [result] = await cluster.delete("going")

    assert (result.error_code, cluster.marked) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ["going"])


async def test_topics_of_a_delete_request_are_deleted_even_if_another_client_deletes_one_of_them(
    cluster: Cluster,
) -> None:
    await cluster.store.create_topic("bills", {0: ReplicaAssignment(ids(1))}, uuid.UUID(int=8), {})
    cluster.known.update(update({"bills": [partition(0, 1)]}))
    marking = Create(znodes.delete_topic_path("orders"))

    def be_faster(ops: object) -> None:
        cluster.ensemble.apply([marking])

    cluster.ensemble.before_multi = be_faster

    results = await cluster.delete("bills", "orders")

    assert [r.error_code for r in results] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert sorted(cluster.marked) == ["bills", "orders"]


async def test_delete_topics_before_version_3_gets_invalid_request_if_topic_deletion_is_disabled(
    cluster: Cluster,
) -> None:
    [old] = await cluster.delete("orders", version=2, is_enabled=False)
    [new] = await cluster.delete("orders", version=3, is_enabled=False)

    assert (old.error_code, new.error_code) == (ErrorCode.INVALID_REQUEST, ErrorCode.TOPIC_DELETION_DISABLED)
    assert cluster.marked == []


async def test_delete_topics_refuses_a_name_with_an_id_and_brokers_that_are_not_controller(cluster: Cluster) -> None:
    handler = DeleteTopics(cluster.known, lambda: cluster.store, cluster, True)
    both = DeleteTopicsRequest([DeleteTopicState("orders", ORDERS)], (), 1)
    response = await handler.handle(request(ApiKey.DELETE_TOPICS, 6), both)
    assert [r.error_code for r in response.responses] == [ErrorCode.INVALID_REQUEST]

    cluster.is_active = False
    [elsewhere] = await cluster.delete("orders")
    assert elsewhere.error_code == ErrorCode.NOT_CONTROLLER
    assert cluster.marked == []


def test_create_partitions_refuses_a_topic_whose_first_partition_has_no_replicas() -> None:
    with pytest.raises(Refusal, match="Partition 0 of topic a has no replicas"):
        plan_growth("a", {0: ReplicaAssignment(())}, 2, None, {BrokerId(1): None})
