"""The broker's picture of the cluster."""

import asyncio
import uuid
from collections.abc import Callable, Mapping
from functools import partial

import pytest
from tests.unit.broker.cluster_state import ORDERS_ID, broker, cache, partition, update

from klamm.broker import metadata_cache
from klamm.broker.metadata_cache import MetadataCache
from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.wire.messages import UpdateMetadataBroker, UpdateMetadataPartitionState, UpdateMetadataRequest

ORDERS_0 = TopicPartition("orders", 0)


def test_update_metadata_replaces_the_cached_brokers_and_merges_the_partitions() -> None:
    known = cache()

    known.update(update({"orders": [partition(1, 3)]}, brokers=[broker(2), broker(3)], controller=2))

    assert sorted(known.brokers) == [2, 3]
    assert known.controller_id == 2
    assert {n: p.leader for n, p in known.partitions("orders").items()} == {0: 1, 1: 3}


def test_the_metadata_cache_removes_a_topic_with_its_last_partition() -> None:
    known = cache()

    assert known.update(update({"orders": [partition(0, -2)]})) == [ORDERS_0]
    assert known.has_topic("orders")
    known.update(update({"orders": [partition(1, -2)]}))

    assert not known.has_topic("orders")
    assert known.topic_id("orders") == ZERO_ID
    assert known.topic_name(ORDERS_ID) is None


def test_the_metadata_cache_keeps_only_the_new_topic_id_of_a_recreated_topic() -> None:
    known = cache()
    newer = uuid.UUID(int=78)

    known.update(update({"orders": [partition(0, 1)]}, ids={"orders": newer}))

    assert known.topic_id("orders") == newer
    assert known.topic_name(newer) == "orders"
    assert known.topic_name(ORDERS_ID) is None


def test_the_metadata_cache_replaces_the_old_partitions_of_a_recreated_topic() -> None:
    """Nobody told that it was deleted: the controller that did so fell."""
    known = cache()

    known.update(update({"orders": [partition(0, 3)]}, ids={"orders": uuid.UUID(int=78)}))

    assert {n: p.leader for n, p in known.partitions("orders").items()} == {0: 3}


def test_the_metadata_cache_removes_the_topic_id_of_a_deleted_topic() -> None:
    known = MetadataCache("PLAINTEXT")

    known.update(update({"orders": [partition(0, -2)]}))

    assert known.topic_name(ORDERS_ID) is None


def test_old_update_metadata_versions_without_grouping_by_topic_are_applied() -> None:
    known = MetadataCache("PLAINTEXT")
    state = UpdateMetadataPartitionState(topic_name="old", partition_index=0, leader=1)
    live = UpdateMetadataBroker(id=1, v0_host="h1", v0_port=9092)

    known.update(UpdateMetadataRequest(controller_id=-1, ungrouped_partition_states=[state], live_brokers=[live]))

    assert known.contains(TopicPartition("old", 0))
    assert known.controller_id is None
    assert known.endpoint(BrokerId(1)) == ("h1", 9092)


def test_the_metadata_cache_returns_endpoints_only_for_listeners_that_the_broker_has() -> None:
    known = cache(update(brokers=[broker(1, "PLAINTEXT", "CLIENT"), broker(2, "CLIENT")]))

    assert known.endpoint(BrokerId(1)) == ("h1", 9092)
    assert known.endpoint(BrokerId(2)) is None
    assert known.is_alive(BrokerId(2))
    assert [(b.id, e.port) for b, e in known.brokers_on("CLIENT")] == [(1, 9093), (2, 9092)]


def test_brokers_read_from_zookeeper_are_used_only_before_the_first_update_metadata() -> None:
    known = MetadataCache("PLAINTEXT")
    found = Broker(BrokerId(9), (Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "h9", 1),))

    known.fill_brokers([found], BrokerId(9))
    assert known.is_alive(BrokerId(9))
    known.update(update())
    known.fill_brokers([found], BrokerId(9))

    assert not known.is_alive(BrokerId(9))
    assert known.controller_id == 1


async def test_waiting_for_leaders_in_the_metadata_ends_once_every_partition_has_a_leader() -> None:
    known = cache(update({"orders": [partition(0, 1), partition(1, -1)]}))
    waiting = asyncio.create_task(known.wait_until({"orders": lambda: known.has_leaders("orders", 2)}, 1000))
    await asyncio.sleep(0)

    known.update(update({"orders": [partition(0, 2)]}))
    await asyncio.sleep(0)
    assert not waiting.done()
    known.update(update({"orders": [partition(1, 2)]}))

    assert not await waiting


async def test_waiting_for_a_topic_in_the_metadata_ignores_updates_of_other_topics() -> None:
    known = cache(update({}))
    asked: list[str] = []

    def is_led(topic: str) -> bool:
        asked.append(topic)
        return known.has_leaders(topic, 1)

    names = [f"t{n}" for n in range(50)]
    waiting = asyncio.create_task(known.wait_until({name: partial(is_led, name) for name in names}, 5))
    await asyncio.sleep(0)
    asked.clear()
    for name in names:
        known.update(update({name: [partition(0, 1)]}))

    assert not await waiting
    assert asked == names


async def test_waiting_for_a_topic_deletion_ends_when_a_full_update_metadata_lacks_the_topic() -> None:
    known = cache(update({"orders": [partition(0, 1)]}))
    waiting = asyncio.create_task(known.wait_until({"orders": lambda: not known.has_topic("orders")}, 5))
    await asyncio.sleep(0)
    anew = update({})
    anew.broker_epoch = 99
    known.update(anew)

    assert not await waiting


async def test_waiting_for_leaders_in_the_metadata_ends_at_the_timeout() -> None:
    known = cache(update({}))

    assert await known.wait_until({"orders": lambda: known.has_leaders("orders", 1)}, 0.0) == ["orders"]


def test_topics_deleted_before_a_brokers_new_registration_are_removed_from_its_metadata() -> None:
    known = cache()
    for broker_epoch, told in (
        (5, {"orders": [partition(0, 1)], "gone": [partition(0, 1)]}),
        (7, {"orders": [partition(0, 2)]}),
        (7, {"new": [partition(0, 1)]}),
        (-1, {"old protocol": [partition(0, 1)]}),
    ):
        message = update(told)
        message.broker_epoch = broker_epoch
        known.update(message)

    assert sorted(known.topics()) == ["new", "old protocol", "orders"]


async def ends(waiting: asyncio.Task[None]) -> bool:
    """Whether the task ends without any time passing."""
    for _ in range(10):
        await asyncio.sleep(0)
    return waiting.done()


async def test_waiting_for_topics_of_zookeeper_ends_once_update_metadata_has_described_them() -> None:
    known = MetadataCache("PLAINTEXT")
    known.expect_topics(["orders", "other"])
    waiting = asyncio.create_task(known.wait_for_expected(["orders", "unknown"]))
    for topics in ({}, {"other": [partition(0, 1)]}):
        known.update(update(topics))
        assert not await ends(waiting)

    known.update(update({"orders": [partition(0, 1)]}))

    assert await ends(waiting)


async def test_topics_known_before_a_new_registration_are_waited_for_until_they_are_described_again() -> None:
    known = cache(update({"orders": [partition(0, 1)]}))
    empty = update({})
    empty.broker_epoch = 7
    known.update(empty)
    waiting = asyncio.create_task(known.wait_for_expected(None))
    assert not await ends(waiting)

    again = update({"orders": [partition(0, 2)]})
    again.broker_epoch = 7
    known.update(again)

    assert await ends(waiting)


async def test_a_request_for_all_topics_waits_for_one_condition_however_many_topics_are_expected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = MetadataCache("PLAINTEXT")
    known.expect_topics([f"topic-{n}" for n in range(100)])
    waited_for: list[int] = []
    wait_until = known.wait_until

    async def count(holds: Mapping[str, Callable[[], bool]], timeout_s: float) -> list[str]:
        waited_for.append(len(holds))
        return await wait_until(holds, timeout_s)

    monkeypatch.setattr(known, "wait_until", count)
    waiting = asyncio.create_task(known.wait_for_expected(None))
    assert not await ends(waiting)
    known.update(update({f"topic-{n}": [partition(0, 1)] for n in range(99)}))
    assert not await ends(waiting)

    known.update(update({"topic-99": [partition(0, 1)]}))

    assert await ends(waiting)
    assert waited_for == [1]


async def test_waiting_for_topics_of_zookeeper_ends_at_one_timeout_for_all_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata_cache, "MAX_WAIT_FOR_EXPECTED_S", 0.0)
    known = MetadataCache("PLAINTEXT")
    known.expect_topics(["being deleted"])

    await known.wait_for_expected(None)

    monkeypatch.setattr(metadata_cache, "MAX_WAIT_FOR_EXPECTED_S", 1000.0)
    await known.wait_for_expected(None)


async def test_metadata_requests_do_not_wait_for_topics_of_zookeeper_after_the_first_update_metadata() -> None:
    known = cache(update({"orders": [partition(0, 1)]}))
    known.expect_topics(["orders", "deleted"])

    await known.wait_for_expected(None)


async def test_a_metadata_request_does_not_wait_for_a_topic_that_zookeeper_no_longer_has() -> None:
    known = MetadataCache("PLAINTEXT")
    known.expect_topics(["orders"])
    waiting = asyncio.create_task(known.wait_for_expected(None))
    assert not await ends(waiting)

    known.forget_topic("orders")

    assert await ends(waiting)


async def test_requests_wait_again_for_topics_of_a_new_registration_after_an_earlier_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The controller describes all topics again."""
    known = MetadataCache("PLAINTEXT")
    known.expect_topics(["being deleted"])
    monkeypatch.setattr(metadata_cache, "MAX_WAIT_FOR_EXPECTED_S", 0.0)
    await known.wait_for_expected(None)
    monkeypatch.undo()
    told = update({"orders": [partition(0, 1)]})
    known.update(told)
    empty = update({})
    empty.broker_epoch = told.broker_epoch = 7

    known.update(empty)

    waiting = asyncio.create_task(known.wait_for_expected(["orders"]))
    assert not await ends(waiting)
    known.update(told)
    assert await ends(waiting)
