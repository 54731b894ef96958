"""Adding partitions to a topic: checks in Kafka's order, a placement, a znode. Source: ZkAdminManager.createPartitions.

Kafka writes over whatever the topic's znode holds by then; here its version guards the write, and a topic that changed
meanwhile is checked again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.replica_placement import Placement, PlacementRefused, eligible_racks, place_more_replicas
from klamm.broker.topic_creation import MAX_PARTITIONS, Refusal, too_many_partitions_text, zookeeper_error_code
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.runtime.time_slices import CountedSlices, Slices
from klamm.zk.errors import ZkError
from klamm.zk.store import Store
from klamm.zk.znodes import MalformedZnode

Lists = Sequence[Sequence[int]]
PARTITIONS_AT_ONCE: Final = 2_000
"""Above it, reading, planning and writing are steps of their own for the event loop."""
log = structlog.get_logger("topics")


@dataclass(slots=True)
class Grown:
    """The result for one topic: its new number of partitions, or why none were added."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    partitions: int = 0


class TopicGrowth:
    """Adds partitions to topics for CreatePartitions."""

    def __init__(
        self,
        cache: MetadataCache,
        store: Callable[[], Store],
        left_out: Collection[BrokerId] = frozenset(),
        make_slices: Callable[[], Slices] = CountedSlices,
    ) -> None:
        """Brokers `left_out` get replicas only where the client assigns them."""
        self._make_slices = make_slices
        self._cache = cache
        self._left_out = left_out
        self._store = store

    async def add_partitions(self, name: str, count: int, lists: Lists | None, *, validate_only: bool = False) -> Grown:
        """Increase the topic to `count` partitions. `lists` has the replicas of the new ones.

        With None they are chosen.
        """
        grown = Grown(name)
        try:
            while not await self._try_add_partitions(name, count, lists, validate_only):
                continue
            grown.partitions = count
        except Refusal as refusal:
            grown.error, grown.message = refusal.code, refusal.text
        except MalformedZnode as error:
            grown.error, grown.message = ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
        except ZkError as error:
            grown.error, grown.message = (
                zookeeper_error_code(error),
                f"The partitions were not written to ZooKeeper: {error}. Try again.",
            )
        return grown

    async def _try_add_partitions(self, name: str, count: int, lists: Lists | None, validate_only: bool) -> bool:
        """Check the request and write the new assignment once; False where another client changed the topic."""
        read = await self._store().topic_requests.read(name)
        if read is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        topic, version = read
        await self._yield_if_many(count)
        brokers = eligible_racks(self._cache.brokers.values(), () if lists is not None else self._left_out)
        added = plan_growth(name, topic.partitions, count, lists, brokers)
        if validate_only:
            return True
        await self._yield_if_many(count)
        written = await self._store().topic_requests.add_partitions(name, topic, added, version)
        if written:
            log.info("partitions added", topic=name, partitions=count)
        return written

    async def _yield_if_many(self, partitions: int) -> None:
        """Let the event loop run others between the steps for a topic with many partitions: each takes up to 50 ms."""
        if partitions > PARTITIONS_AT_ONCE:
            slices = self._make_slices()
            await slices.yield_now()
            slices.close()


def plan_growth(
    topic: str,
    existing: Mapping[int, ReplicaAssignment],
    count: int,
    lists: Lists | None,
    brokers: Mapping[BrokerId, str | None],
) -> Placement:
    """The partitions to be added. Raises Refusal, in Kafka's order of checks."""
    if any(a.is_being_reassigned for a in existing.values()):
        text = f"A partition reassignment is in progress for the topic '{topic}'."
        raise Refusal(ErrorCode.REASSIGNMENT_IN_PROGRESS, text)
    if not existing:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
    more = count - len(existing)
    if more < 0:
        text = f"Topic currently has {len(existing)} partitions, which is higher than the requested {count}."
        raise Refusal(ErrorCode.INVALID_PARTITIONS, text)
    if more == 0:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, f"Topic already has {len(existing)} partitions.")
    if count > MAX_PARTITIONS:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, too_many_partitions_text(count))
    if lists is not None:
        _check_brokers(lists, more, brokers)
    first = existing.get(0)
    if first is None or not first.replicas:
        raise Refusal(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Partition 0 of topic {topic} has no replicas in its znode. See klamm audit --zookeeper.",
        )
    if lists is not None:
        return _check_lists(lists, len(existing), len(first.replicas))
    try:
        numbers = range(len(existing), count)
        return place_more_replicas(brokers, numbers, len(first.replicas), first.replicas[0])
    except PlacementRefused as error:
        raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, str(error)) from None


def _check_brokers(lists: Lists, more: int, brokers: Mapping[BrokerId, str | None]) -> None:
    """Raise Refusal where the replica lists do not fit the number of new partitions or name unknown brokers."""
    unknown = sorted({b for replicas in lists for b in replicas if b not in brokers})
    if unknown:
        text = f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}."
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    if len(lists) != more:
        text = f"Increasing the number of partitions by {more} but {len(lists)} assignments provided."
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


def _check_lists(lists: Lists, first_number: int, replication_factor: int) -> Placement:
    """The replica lists by partition.

    Raises Refusal for empty lists, repeated brokers and another replication factor.
    """
    for number, replicas in enumerate(lists, first_number):
        if not replicas:
            text = f"Cannot have replication factor of 0 for partition id {number}."
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        if len(set(replicas)) != len(replicas):
            listed = ", ".join(map(str, replicas))
            text = f"Duplicate brokers not allowed in replica assignment: {listed} for partition id {number}."
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    placed = {n: tuple(map(BrokerId, replicas)) for n, replicas in enumerate(lists, first_number)}
    wrong = {n: len(replicas) for n, replicas in placed.items() if len(replicas) != replication_factor}
    if wrong:
        text = (
            f"Inconsistent replication factor between partitions, partition 0 has {replication_factor} while partitions"
            f" [{', '.join(map(str, wrong))}] have replication factors [{', '.join(map(str, wrong.values()))}],"
            " respectively."
        )
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return placed
