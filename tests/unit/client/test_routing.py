"""Who is asked, and what follows from the answers: steps run by hand, without I/O."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from klamm.client.backoff import Backoff
from klamm.client.cluster import MIN_ABSENCE_S, ClusterMetadata, TopicGone
from klamm.client.errors import ConnectionLost, RetriableError, Unreachable
from klamm.client.offsets import LATEST, list_offsets
from klamm.client.records import FetchLimits, FetchPosition, fetch_request, partition_data_of
from klamm.client.routing import CoordinatorType, coordinator, coordinator_of, find_coordinator_request
from klamm.client.steps import Ask, Steps, Wait, retried
from klamm.model.cluster import Address, parse_addresses
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.messages import (
    Coordinator,
    FetchableTopicResponse,
    FetchResponse,
    FetchResponsePartitionData,
    FindCoordinatorResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ONE, TWO, THREE = Address("one", 1), Address("two", 2), Address("three", 3)
ORDERS = TopicPartition("orders", 0)
OLD_ID, NEW_ID = uuid.UUID(int=7), uuid.UUID(int=8)


class Brokers:
    """Plays the driver: `on_ask` answers, or raises; time passes in waits alone."""

    def __init__(self, on_ask: Callable[[Address, Any], Any]) -> None:
        self.now_s = 0.0
        self.asked: list[Address] = []
        self.on_ask = on_ask
        self.cluster = ClusterMetadata([ONE, TWO], lambda: self.now_s)

    def run(self, steps: Steps[Any]) -> Any:
        try:
            step = next(steps)
            while True:
                if isinstance(step, Wait):
                    self.now_s += step.seconds
                    step = steps.send(None)
                    continue
                assert isinstance(step, Ask)
                self.asked.append(step.address)
                try:
                    answer = self.on_ask(step.address, step.request.body(step.request.newest))
                except ConnectionLost as error:
                    self.cluster.on_lost(step.address)
                    step = steps.throw(error)
                else:
                    self.cluster.on_answer(step.address)
                    step = steps.send(answer)
        except StopIteration as done:
            return done.value

    def backoff(self, total_s: float = 60.0) -> Backoff:
        return Backoff(lambda: self.now_s, total_s)


def metadata(leader: int = 1, topic_id: uuid.UUID = OLD_ID, error: ErrorCode = ErrorCode.NONE) -> MetadataResponse:
    partitions = [] if error else [MetadataResponsePartition(partition_index=0, leader_id=leader)]
    topic = MetadataResponseTopic(error_code=error, name="orders", topic_id=topic_id, partitions=partitions)
    brokers = [MetadataResponseBroker(n, a.host, a.port) for n, a in ((1, ONE), (2, TWO), (3, THREE))]
    return MetadataResponse(brokers=brokers, controller_id=3, topics=[topic])


def lost(address: Address) -> ConnectionLost:
    return ConnectionLost(f"no connection to {address}")


class TestMetadata:
    def test_the_client_reads_metadata_from_the_first_bootstrap_server_that_answers(self) -> None:
        def answer(address: Address, _: Any) -> MetadataResponse:
            if address == ONE:
                raise lost(address)
            return metadata()

        brokers = Brokers(answer)
        brokers.run(brokers.cluster.refresh(["orders"]))

        assert brokers.asked == [ONE, TWO]
        assert brokers.cluster.addresses() == [TWO, ONE, THREE]
        assert (brokers.cluster.controller, brokers.cluster.brokers[BrokerId(3)]) == (3, THREE)

    def test_a_metadata_refresh_raises_a_retriable_error_when_no_broker_answers(self) -> None:
        def answer(address: Address, _: Any) -> MetadataResponse:
            raise lost(address)

        brokers = Brokers(answer)

        with pytest.raises(RetriableError, match="no connection to one:1; no connection to two:2"):
            brokers.run(brokers.cluster.refresh(None))

    def test_client_retries_end_with_an_unreachable_error_that_contains_the_last_cause(self) -> None:
        def answer(address: Address, _: Any) -> MetadataResponse:
            raise lost(address)

        brokers = Brokers(answer)
        attempt = lambda: brokers.cluster.refresh(None)  # noqa: E731

        problem = r"metadata: no attempt succeeded within 5 s; the last error: .*one:1.*\. Check that the brokers run"
        with pytest.raises(Unreachable, match=problem):
            brokers.run(retried("metadata", attempt, brokers.backoff(5)))
        assert 4 < brokers.now_s <= 5

    def test_a_broker_with_a_lost_connection_is_removed_from_the_cached_leaders(self) -> None:
        brokers = Brokers(lambda a, m: metadata(leader=2))
        assert brokers.run(brokers.cluster.leader(ORDERS)) == TWO

        brokers.cluster.on_lost(TWO)
        brokers.on_ask = lambda a, m: metadata(leader=3)

        assert brokers.run(brokers.cluster.leader(ORDERS)) == THREE

    def test_a_cached_leader_is_used_without_a_metadata_request(self) -> None:
        brokers = Brokers(lambda a, m: metadata())
        brokers.run(brokers.cluster.leader(ORDERS))
        brokers.run(brokers.cluster.leader(ORDERS))

        assert len(brokers.asked) == 1

    def test_looking_up_a_partition_without_a_leader_raises_a_retriable_error(self) -> None:
        brokers = Brokers(lambda a, m: metadata(leader=-1))

        with pytest.raises(RetriableError, match="orders-0 has no leader"):
            brokers.run(brokers.cluster.leader(ORDERS))


class TestTopicsThatGo:
    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            (metadata(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "topic orders does not exist"),
            (metadata(topic_id=NEW_ID), "topic orders was deleted and created again: its id was AAA"),
        ],
        ids=["deleted", "created again"],
    )
    def test_a_topic_counts_as_deleted_after_brokers_report_unknown_topic_for_two_seconds(
        self, answer: MetadataResponse, reason: str
    ) -> None:
        brokers = Brokers(lambda a, m: answer)
        brokers.cluster.topic_ids = {"orders": OLD_ID}

        with pytest.raises(TopicGone, match=reason):
            brokers.run(retried("x", lambda: brokers.cluster.leader(ORDERS), brokers.backoff()))

        assert MIN_ABSENCE_S <= brokers.now_s < 5
        assert set(brokers.asked) == {ONE, TWO, THREE}

    def test_a_topic_that_at_least_one_broker_knows_does_not_count_as_deleted(self) -> None:
        def answer(address: Address, _: Any) -> MetadataResponse:
            return metadata(leader=2) if address == THREE else metadata(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

        brokers = Brokers(answer)

        assert brokers.run(retried("x", lambda: brokers.cluster.leader(ORDERS), brokers.backoff())) == TWO

    @pytest.mark.parametrize("is_cached", [False, True], ids=["looked up", "seen in the metadata of all topics"])
    def test_the_time_for_which_a_topic_is_missing_begins_again_after_it_was_seen(self, is_cached: bool) -> None:
        missing = metadata(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        brokers = Brokers(lambda a, m: missing)
        with pytest.raises(RetriableError):
            brokers.run(brokers.cluster.leader(ORDERS))
        brokers.on_ask = lambda a, m: metadata(leader=2)
        if is_cached:
            brokers.run(brokers.cluster.refresh(None))
        assert brokers.run(brokers.cluster.leader(ORDERS)) == TWO

        brokers.now_s += 2 * MIN_ABSENCE_S
        brokers.cluster.forget_leader(ORDERS)
        brokers.on_ask = lambda a, m: missing

        with pytest.raises(RetriableError, match="topic orders does not exist"):
            brokers.run(brokers.cluster.leader(ORDERS))

    def test_a_recreated_topic_is_accepted_when_the_caller_expects_no_topic_id(self) -> None:
        brokers = Brokers(lambda a, m: metadata(topic_id=NEW_ID))

        assert brokers.run(brokers.cluster.leader(ORDERS)) == ONE


def offsets(code: ErrorCode = ErrorCode.NONE, offset: int = 5) -> ListOffsetsResponse:
    partition = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("orders", [partition])])


class TestOffsets:
    def test_the_leader_is_looked_up_again_after_not_leader_or_follower(self) -> None:
        leader = 1

        def answer(address: Address, message: Any) -> Any:
            nonlocal leader
            if type(message).__name__ == "MetadataRequest":
                return metadata(leader)
            if address == ONE:
                leader = 2
                return offsets(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            return offsets()

        brokers = Brokers(answer)

        assert brokers.run(list_offsets(brokers.cluster, {ORDERS: LATEST}, brokers.backoff())) == {ORDERS: 5}
        assert brokers.asked[-1] == TWO

    def test_looking_up_leaders_of_many_partitions_takes_few_metadata_requests(self) -> None:
        brokers = Brokers(lambda a, m: metadata(leader=-1))
        many = {TopicPartition("orders", n): LATEST for n in range(100)}

        with pytest.raises(TopicGone, match="topic orders has no partition 1"):
            brokers.run(list_offsets(brokers.cluster, many, brokers.backoff()))
        assert len(brokers.asked) < 10


class TestFetch:
    LIMITS = FetchLimits(max_bytes=100, max_wait_ms=10)

    def test_a_topic_with_a_topic_id_is_fetched_with_fetch_versions_above_12(self) -> None:
        request = fetch_request(ORDERS, OLD_ID, FetchPosition(5), self.LIMITS)

        assert request.newest > 12
        assert fetch_request(ORDERS, None, FetchPosition(5), self.LIMITS).newest == 12

    def test_a_fetch_response_with_another_topic_id_raises_a_retriable_error(self) -> None:
        data = FetchResponsePartitionData(partition_index=0)
        theirs = FetchResponse(responses=[FetchableTopicResponse(topic_id=NEW_ID, partitions=[data])])

        with pytest.raises(RetriableError, match="response has 0 partitions of this topic"):
            partition_data_of(theirs, ORDERS, OLD_ID)
        assert partition_data_of(theirs, ORDERS, NEW_ID) is data


class TestCoordinators:
    def test_find_coordinator_requests_carry_one_key_before_version_4_and_a_list_afterwards(self) -> None:
        request = find_coordinator_request(CoordinatorType.GROUP, "g")

        assert request.body(3).key == "g"  # type: ignore[attr-defined]
        assert request.body(4).coordinator_keys == ("g",)  # type: ignore[attr-defined]

    def test_a_find_coordinator_request_for_transactions_has_at_least_version_1(self) -> None:
        assert find_coordinator_request(CoordinatorType.TRANSACTION, "t").oldest == 1

    def test_the_coordinator_is_read_from_old_and_new_find_coordinator_responses(self) -> None:
        old = FindCoordinatorResponse(node_id=2, host="two", port=2)
        new = FindCoordinatorResponse(coordinators=[Coordinator("g", 2, "two", 2)])

        assert coordinator_of(old, "g") == coordinator_of(new, "g") == TWO

    def test_the_coordinator_is_looked_up_at_the_next_broker_when_a_broker_does_not_answer(self) -> None:
        def answer(address: Address, _: Any) -> FindCoordinatorResponse:
            if address == ONE:
                raise lost(address)
            return FindCoordinatorResponse(coordinators=[Coordinator("g", 3, "three", 3)])

        brokers = Brokers(answer)

        assert brokers.run(coordinator(brokers.cluster, CoordinatorType.GROUP, "g")) == THREE
        assert brokers.asked == [ONE, TWO]

    def test_a_coordinator_not_available_response_raises_a_retriable_error(self) -> None:
        answer = FindCoordinatorResponse(coordinators=[Coordinator("g", error_code=15)])

        with pytest.raises(RetriableError, match="coordinator of g: COORDINATOR_NOT_AVAILABLE"):
            coordinator_of(answer, "g")


def test_bootstrap_addresses_are_parsed_and_malformed_addresses_raise_value_error() -> None:
    assert parse_addresses("a:1, [::1]:2, a:1,") == (Address("a", 1), Address("::1", 2))
    for wrong in ("a", "a:x", ":1", "a:70000", "", ","):
        with pytest.raises(ValueError, match="HOST:PORT"):
            parse_addresses(wrong)
