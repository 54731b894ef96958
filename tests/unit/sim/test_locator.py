"""Which leader the clients of the cluster tier believe in."""

import uuid
from typing import Any

import pytest

from klamm.client.errors import RetriableError
from klamm.model.cluster import Address
from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.clients.locator import Locator
from klamm.wire.messages import MetadataResponsePartition, MetadataResponseTopic

ORDERS = TopicPartition("orders", 0)
TOPIC_ID, NEW_TOPIC_ID = uuid.UUID(int=7), uuid.UUID(int=8)


class ScriptedClient:
    """A client whose metadata requests are answered in this order: leader, leader epoch, topic id."""

    def __init__(self, *answers: tuple[int, int, uuid.UUID]) -> None:
        self._answers = list(answers)
        self.cluster = self
        self.brokers = {1: Address("node-1", 9092), 2: Address("node-2", 9092)}

    def refresh(self, topics: list[str]) -> tuple[int, int, uuid.UUID]:
        return self._answers.pop(0)

    async def run(self, answer: tuple[int, int, uuid.UUID]) -> dict[str, Any]:
        leader, epoch, topic_id = answer
        partition = MetadataResponsePartition(leader_id=leader, leader_epoch=epoch)
        return {"orders": MetadataResponseTopic(name="orders", topic_id=topic_id, partitions=[partition])}


async def test_a_simulated_client_ignores_metadata_with_a_lower_leader_epoch_than_it_has_seen() -> None:
    """Broker 2 is cut off from the controller and still names itself leader in epoch 0."""
    locator = Locator(ScriptedClient((1, 1, TOPIC_ID), (2, 0, TOPIC_ID), (1, 1, TOPIC_ID)))  # type: ignore[arg-type]
    await locator.leader(ORDERS)
    locator.forget(ORDERS)

    with pytest.raises(RetriableError):
        await locator.leader(ORDERS)

    assert (await locator.leader(ORDERS)).id == 1


async def test_a_simulated_client_accepts_a_lower_leader_epoch_of_a_recreated_topic() -> None:
    locator = Locator(ScriptedClient((1, 1, TOPIC_ID), (2, 0, NEW_TOPIC_ID)))  # type: ignore[arg-type]
    await locator.leader(ORDERS)
    locator.forget(ORDERS)

    assert (await locator.leader(ORDERS)).id == 2
