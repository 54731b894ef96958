"""Leader epochs in the client: which leaders it believes, what it asks, and how a reader notices a truncated log."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.support.kafka_server import serve_brokers
from tests.support.scripted_brokers import ScriptedCluster
from tests.unit.client.test_routing import NEW_ID, OLD_ID, ONE, ORDERS, THREE, TWO, Brokers
from tests.unit.spark.scripts import log, numbered

from klamm.client.asynchronous import AsyncClient, AsyncSettings
from klamm.client.backoff import Backoff
from klamm.client.cluster import topic_ids_of
from klamm.client.committed_offsets import committed_of, offset_commit_request
from klamm.client.errors import Unreachable
from klamm.client.leaders import KnownLeaders, Leader, OffsetAndEpoch
from klamm.client.offsets import EARLIEST, LATEST, find_offsets
from klamm.client.reader import LIMITS, Gap, LogReader
from klamm.client.steps import retried
from klamm.client.truncations import find_truncations, truncation_of
from klamm.model.cluster import parse_addresses
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.model.topic_ids import ZERO_ID
from klamm.runtime.world import real_world
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetForLeaderEpochRequest,
)

NEW = b"new %d"


def topic(leader: int, epoch: int, topic_id: uuid.UUID = OLD_ID) -> MetadataResponseTopic:
    """Orders with one partition."""
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    return MetadataResponseTopic(name="orders", topic_id=topic_id, partitions=[partition])


def metadata(leader: int, epoch: int, topic_id: uuid.UUID = OLD_ID) -> MetadataResponse:
    brokers = [MetadataResponseBroker(n, *address) for n, address in enumerate((ONE, TWO, THREE), 1)]
    return MetadataResponse(brokers=brokers, topics=[topic(leader, epoch, topic_id)])


class TestKnownLeaders:
    def test_a_leader_of_an_older_epoch_is_refused_and_the_newer_one_stays(self) -> None:
        leaders = KnownLeaders()

        assert leaders.update([topic(2, 4)], has_epochs=True)
        assert not leaders.update([topic(1, 3)], has_epochs=True)

        assert leaders.get(ORDERS) == Leader(BrokerId(2), 4)
        assert "broker 1 is said to lead orders-0 in leader epoch 3, but epoch 4 was seen" in leaders.refused[ORDERS]
        assert leaders.update([topic(3, 4)], has_epochs=True)
        assert (leaders.get(ORDERS), leaders.refused) == (Leader(BrokerId(3), 4), {})

    @pytest.mark.parametrize(("topic_id", "epoch"), [(NEW_ID, 0), (OLD_ID, 4), (ZERO_ID, 4)])
    def test_epochs_begin_again_with_a_new_topic_id_only(self, topic_id: uuid.UUID, epoch: int) -> None:
        leaders = KnownLeaders()
        leaders.update([topic(2, 4)], has_epochs=True)

        leaders.update([topic(1, 0, topic_id)], has_epochs=True)

        assert leaders.get(ORDERS).epoch == epoch

    def test_epochs_of_metadata_before_version_9_are_neither_believed_nor_sent(self) -> None:
        leaders = KnownLeaders()
        leaders.update([topic(2, 4)], has_epochs=True)

        assert leaders.update([topic(1, 3)], has_epochs=False)

        assert leaders.get(ORDERS) == Leader(BrokerId(1), -1)

    def test_a_newer_epoch_told_by_others_forgets_the_leader(self) -> None:
        leaders = KnownLeaders()
        leaders.update([topic(1, 3)], has_epochs=True)

        leaders.see(ORDERS, 3, OLD_ID)
        assert leaders.get(ORDERS).broker == 1
        leaders.see(ORDERS, 9, NEW_ID)  # another topic of this name
        assert leaders.get(ORDERS).broker == 1
        leaders.see(ORDERS, 4, OLD_ID)

        assert leaders.get(ORDERS) == Leader()
        assert not leaders.update([topic(1, 3)], has_epochs=True)

    def test_an_epoch_that_is_known_before_any_metadata_counts(self) -> None:
        leaders = KnownLeaders()
        leaders.see(ORDERS, 4, OLD_ID)

        assert not leaders.update([topic(1, 3)], has_epochs=True)

    def test_a_leader_that_a_refusal_names_is_taken_if_it_is_newer(self) -> None:
        leaders = KnownLeaders()
        leaders.update([topic(1, 3)], has_epochs=True)

        for named, expected in ((Leader(BrokerId(-1), 4), 1), (Leader(BrokerId(2), 3), 1), (Leader(BrokerId(2), 4), 2)):
            leaders.learn(ORDERS, named)
            assert leaders.get(ORDERS).broker == expected


class TestMetadata:
    def test_a_broker_that_is_behind_is_asked_last(self) -> None:
        brokers = Brokers(lambda at, message: metadata(1, 3) if at == ONE else metadata(2, 4))
        brokers.cluster.see_epoch(ORDERS, 4, OLD_ID)

        assert brokers.run(retried("x", lambda: brokers.cluster.leader(ORDERS), brokers.backoff())) == TWO
        assert brokers.asked == [ONE, TWO]
        brokers.cluster.forget_leader(ORDERS)
        assert brokers.run(brokers.cluster.leader(ORDERS)) == TWO
        assert brokers.asked[2:] == [TWO]

    def test_where_all_brokers_are_behind_the_error_says_so(self) -> None:
        brokers = Brokers(lambda at, message: metadata(1, 3))
        brokers.cluster.see_epoch(ORDERS, 4, OLD_ID)

        with pytest.raises(Unreachable, match=r"leader epoch 3, but epoch 4 was seen before: .* cut off"):
            brokers.run(find_offsets(brokers.cluster, {ORDERS: LATEST}, brokers.backoff(10)))


@pytest.mark.parametrize(
    ("end", "offset"),
    [((60, 3), 60), ((99, 3), 99), ((100, 3), "none"), ((200, 2), "none"), ((-1, -1), None), ((-1, 3), None)],
)
def test_a_log_is_truncated_where_an_epoch_ends_before_the_position(end: tuple[int, int], offset: Any) -> None:
    found = truncation_of(ORDERS, OffsetAndEpoch(100, 3), OffsetAndEpoch(*end), 4)

    assert (found.offset if found is not None else "none") == offset


def test_committed_offsets_carry_the_leader_epoch() -> None:
    message: Any = offset_commit_request("g", {ORDERS: OffsetAndEpoch(7, 3)}).body(8)
    (sent,) = message.topics[0].partitions
    stored = OffsetFetchResponsePartition(0, sent.committed_offset, sent.committed_leader_epoch)

    read = committed_of(OffsetFetchResponse(topics=[OffsetFetchResponseTopic("orders", [stored])]))

    assert (sent.committed_offset, sent.committed_leader_epoch) == (7, 3)
    assert read == {ORDERS: OffsetAndEpoch(7, 3)}


@pytest.mark.parametrize(("offset", "found"), [(0, {ORDERS: OffsetAndEpoch(0, 3)}), (-1, {})])
def test_a_committed_offset_of_0_is_one_and_a_negative_one_is_none(offset: int, found: Any) -> None:
    stored = OffsetFetchResponsePartition(0, offset, 3)

    assert committed_of(OffsetFetchResponse(topics=[OffsetFetchResponseTopic("orders", [stored])])) == found


# ---- a reader, on real sockets


class Reading:
    """A `LogReader` of orders-0 that the test moves on; `requests` are those of the reader."""

    def __init__(self, cluster: ScriptedCluster, bootstrap: str) -> None:
        self.cluster = cluster
        self.requests: list[tuple[int, Any]] = []
        self._bootstrap = parse_addresses(bootstrap)
        cluster.on_request = lambda broker, request: self.requests.append((broker, request))

    def run(self, body: Callable[[AsyncClient], Any]) -> Any:
        async def main() -> Any:
            async with AsyncClient(real_world(), self._bootstrap, AsyncSettings("test", 5.0)) as client:
                client.cluster.topic_ids = topic_ids_of(await client.run(client.cluster.refresh(["orders"])))
                return await asyncio.wait_for(body(client), 20)

        return asyncio.run(main())

    def read(
        self, at: OffsetAndEpoch, end: int, after: Callable[[], None] = lambda: None, reset: int = EARLIEST
    ) -> list[Any]:
        """What the reader returns until `end`: (position, next position), and gaps. `after` is called after one."""

        async def body(client: AsyncClient) -> list[Any]:
            limits = LIMITS._replace(max_partition_bytes=1, max_wait_ms=1)
            reader = LogReader(client, {ORDERS: at}, limits, 10, reset)
            reader.start()
            found: list[Any] = []
            try:
                while not found or found[-1][1] != end:
                    taken = await reader.take()
                    if isinstance(taken, Gap):
                        found.append(taken)
                    elif taken.next_position > taken.position:
                        found.append((taken.position, taken.next_position, taken.leader_epoch))
                    if len(found) == 1:
                        after()
            finally:
                await reader.close()
            return found

        return self.run(body)  # type: ignore[no-any-return]

    def sent(self, kind: type[Any]) -> list[Any]:
        return [request for _, request in self.requests if isinstance(request, kind)]


@contextmanager
def reading(end: int = 30, epoch: int = 3) -> Iterator[Reading]:
    """Broker 1 leads orders-0 with these records."""
    cluster = ScriptedCluster({ORDERS: log(0, end, epoch=epoch)})
    with serve_brokers(cluster) as bootstrap:
        yield Reading(cluster, bootstrap)


def elect_uncleanly(cluster: ScriptedCluster, kept: int, end: int) -> None:
    """Broker 2 becomes the leader in epoch 4 with the records before `kept`, and writes others up to `end`."""
    with cluster.lock:
        cluster.logs[ORDERS].elect(2, 4, kept, *numbered(kept, end, epoch=4, text=NEW))


class TestReader:
    def test_requests_name_the_epochs_of_the_leader_and_of_the_last_record(self) -> None:
        with reading() as reader:
            reader.read(OffsetAndEpoch(0), 20)
            sent = [p for r in reader.sent(FetchRequest) for p in r.topics[0].partitions][:2]
            assert [(p.fetch_offset, p.current_leader_epoch, p.last_fetched_epoch) for p in sent] == [
                (0, 3, -1),
                (10, 3, 3),
            ]

            reader.run(lambda client: client.run(find_offsets(client.cluster, {ORDERS: LATEST}, backoff())))
            assert reader.sent(ListOffsetsRequest)[0].topics[0].partitions[0].current_leader_epoch == 3

    def test_a_committed_offset_that_the_log_has_no_longer_is_a_gap_at_the_divergence(self) -> None:
        with reading() as reader:
            elect_uncleanly(reader.cluster, 10, 50)

            gap, *found = reader.read(OffsetAndEpoch(30, 3), 50)

        assert gap[:3] == (ORDERS, 30, OffsetAndEpoch(10, 4))
        assert "truncated at offset 10: the leader of epoch 3 had them, that of epoch 4 was elected" in gap.reason
        assert [start for start, *_ in found] == [10, 20, 30, 40]
        assert not [r for r in reader.sent(FetchRequest) if r.topics[0].partitions[0].fetch_offset == 30][1:]

    def test_a_committed_offset_that_a_later_leader_has_is_read_from(self) -> None:
        with reading() as reader:
            elect_uncleanly(reader.cluster, 30, 50)

            assert reader.read(OffsetAndEpoch(30, 3), 50) == [(30, 40, 4), (40, 50, 4)]
        (asked,) = reader.sent(OffsetForLeaderEpochRequest)
        assert asked.topics[0].partitions[0].leader_epoch == 3
        assert asked.topics[0].partitions[0].current_leader_epoch == 4

    def test_a_reader_is_not_asked_to_validate_what_the_same_leader_told(self) -> None:
        with reading() as reader:
            reader.read(OffsetAndEpoch(10, 3), 30)
            assert reader.sent(OffsetForLeaderEpochRequest) == []

    def test_a_log_that_is_truncated_while_it_is_read_is_a_gap(self) -> None:
        with reading(end=50) as reader:
            found = reader.read(OffsetAndEpoch(0), 80, lambda: elect_uncleanly(reader.cluster, 0, 80))

        [gap] = [taken for taken in found if isinstance(taken, Gap)]
        after = found[found.index(gap) + 1 :]
        assert (gap.next_position.offset, after[0][0], after[-1][1]) == (0, 0, 80)

    def test_a_leader_of_unknown_epoch_finds_the_divergence_by_the_epoch_of_the_last_record(self) -> None:
        with reading(end=50) as reader:
            reader.cluster.offered[ApiKey.METADATA] = (4, 8)
            found = reader.read(OffsetAndEpoch(0), 80, lambda: elect_uncleanly(reader.cluster, 0, 80))
            assert reader.sent(OffsetForLeaderEpochRequest) == []

        [gap] = [taken for taken in found if isinstance(taken, Gap)]
        assert gap.next_position.offset == 0
        assert "the leader of epoch 3 had them, the present one was elected without them" in gap.reason

    def test_a_leader_that_lost_its_leader_epoch_checkpoint_is_read_on(self) -> None:
        """It answers OFFSET_OUT_OF_RANGE to the epoch of the last record, though its log has the offset."""
        with reading(end=50) as reader:
            found = reader.read(OffsetAndEpoch(0), 50, reader.cluster.logs[ORDERS].epochs.clear)

        assert found == [(n, n + 10, 3) for n in range(0, 50, 10)]

    def test_the_log_end_is_no_gap_where_the_leader_refuses_the_epoch_of_the_last_record(self) -> None:
        with reading(end=10) as reader:
            leader = reader.cluster.logs[ORDERS]

            def append_once_no_epoch_is_sent(_broker: int, request: Any) -> None:
                if isinstance(request, FetchRequest) and len(leader.batches) == 1:
                    position = request.topics[0].partitions[0]
                    if (position.fetch_offset, position.last_fetched_epoch) == (10, -1):
                        leader.batches += numbered(10, 20, epoch=3)

            reader.cluster.on_request = append_once_no_epoch_is_sent
            found = reader.read(OffsetAndEpoch(0), 20, leader.epochs.clear)

        assert found == [(0, 10, 3), (10, 20, 3)]

    @pytest.mark.parametrize(("reset", "offset"), [(EARLIEST, 0), (LATEST, 30)])
    def test_where_the_leader_does_not_know_the_offset_the_reader_goes_on_by_reset(
        self, reset: int, offset: int
    ) -> None:
        with reading() as reader:
            leader = reader.cluster.logs[ORDERS]
            leader.epoch, leader.epochs = 4, []

            async def body(client: AsyncClient) -> Any:
                taking = LogReader(client, {ORDERS: OffsetAndEpoch(20, 3)}, LIMITS, 10, reset)
                taking.start()
                try:
                    return await taking.take()
                finally:
                    await taking.close()

            gap = reader.run(body)

        assert gap.next_position.offset == offset
        assert "its leader of epoch 4 has no records of epoch 3" in gap.reason

    def test_a_cut_off_leader_is_not_read_after_its_successor(self) -> None:
        with reading(end=20) as reader:
            old = reader.cluster.cut_off_broker(1)
            old.logs[ORDERS].batches += numbered(20, 40, epoch=3)
            reader.cluster.logs[ORDERS].elect(2, 4, 20, *numbered(20, 50, epoch=4, text=NEW))

            found = reader.read(OffsetAndEpoch(0, 4), 50)

        assert {taken[2] for taken in found if taken[0] >= 20} == {4}
        assert not [r for broker, r in reader.requests if broker == 1 and isinstance(r, FetchRequest)]

    @pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH])
    def test_an_epoch_that_the_leader_refuses_is_looked_up_again(self, code: ErrorCode) -> None:
        with reading(end=20) as reader:
            reader.cluster.errors[ORDERS] = [code]

            assert [start for start, *_ in reader.read(OffsetAndEpoch(0), 20)] == [0, 10]
        assert len(reader.sent(MetadataRequest)) >= 2

    def test_a_refusal_that_names_the_new_leader_is_followed_without_metadata(self) -> None:
        with reading(end=20) as reader:
            reader.cluster.tells_leaders = True
            before: list[int] = []

            def elect() -> None:
                elect_uncleanly(reader.cluster, 20, 40)
                before.append(len(reader.sent(MetadataRequest)))

            found = reader.read(OffsetAndEpoch(0), 40, elect)

        assert found[-1][1:] == (40, 4)
        assert before == [len(reader.sent(MetadataRequest))]


def backoff() -> Backoff:
    loop = asyncio.get_running_loop()
    return Backoff(loop.time, 5)


def test_brokers_without_offset_for_leader_epoch_are_taken_to_have_the_records() -> None:
    with reading() as reader:
        reader.cluster.offered[ApiKey.OFFSET_FOR_LEADER_EPOCH] = (0, 2)
        elect_uncleanly(reader.cluster, 10, 50)

        found = reader.run(
            lambda client: client.run(find_truncations(client.cluster, {ORDERS: OffsetAndEpoch(30, 3)}, backoff()))
        )

    assert found == {}
