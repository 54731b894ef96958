"""FindCoordinator in every version."""

from typing import Any

import pytest
from tests.unit.broker.cluster_state import broker, cache, partition, request, update

from klamm.broker.handlers.find_coordinator import FIND_COORDINATOR, FindCoordinator
from klamm.broker.metadata_cache import MetadataCache
from klamm.coordinator.topic_partitions import partition_for
from klamm.model.errors import ErrorCode
from klamm.wire.api import ApiKey
from klamm.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
GROUP, TRANSACTION, SHARE = 0, 1, 2
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Creation:
    def __init__(self) -> None:
        self.created: list[str] = []

    async def create_on_first_use(self, name: str) -> ErrorCode:
        self.created.append(name)
        return ErrorCode.LEADER_NOT_AVAILABLE


class Finder:
    def __init__(self, known: MetadataCache) -> None:
        self.creation = Creation()
        creation: Any = self.creation
        self._handler = FindCoordinator(
            known, creation, lambda group: partition_for(group, 3), lambda transaction: partition_for(transaction, 5)
        )

    async def find(self, key: str, kind: int = GROUP, version: int = 3, listener: str = "PLAINTEXT") -> Any:
        message = FindCoordinatorRequest(key=key, key_type=kind)
        if version >= 4:
            message = FindCoordinatorRequest(key_type=kind, coordinator_keys=(key, "other"))
        response = await self._handler.handle(request(ApiKey.FIND_COORDINATOR, version, listener=listener), message)
        decoded = FindCoordinatorResponse.decode(response.encode(version), version)
        return decoded if version < 4 else decoded.coordinators[0]


def known(**topics: int) -> MetadataCache:
    """Topics whose partition N is led by broker N + 1; the last one has no leader."""
    states = {
        name: [partition(n, -1 if n == count - 1 else n + 1) for n in range(count)] for name, count in topics.items()
    }
    return cache(update(states, [broker(1), broker(2, "PLAINTEXT", "OTHER"), broker(3)]))


def key_of(number: int, count: int = 3) -> str:
    return next(name for name in map(str, range(100)) if partition_for(name, count) == number)


@pytest.mark.parametrize("version", range(FIND_COORDINATOR.max_version + 1))
async def test_every_find_coordinator_version_returns_the_leader_of_the_groups_offsets_partition(version: int) -> None:
    found = await Finder(known(**{OFFSETS: 3})).find(key_of(1), version=version)
    assert (found.error_code, found.node_id, found.host, found.port) == (ErrorCode.NONE, 2, "h2", 9092)
    assert found.error_message == ("NONE" if 1 <= version <= 3 else "")


async def test_find_coordinator_with_several_keys_answers_each_key() -> None:
    finder = Finder(known(**{OFFSETS: 3}))
    message = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=(key_of(0), key_of(1), key_of(2)))
    response = await finder._handler.handle(request(ApiKey.FIND_COORDINATOR, 4), message)
    assert [(c.key, c.node_id, c.error_code) for c in response.coordinators] == [
        (key_of(0), 1, ErrorCode.NONE),
        (key_of(1), 2, ErrorCode.NONE),
        (key_of(2), -1, NOT_AVAILABLE),
    ]


@pytest.mark.parametrize("version", [0, 3, 6])
async def test_the_first_find_coordinator_request_creates_the_consumer_offsets_topic(version: int) -> None:
    finder = Finder(known())
    found = await finder.find("g", version=version)
    assert (found.error_code, found.node_id, found.host, found.port) == (NOT_AVAILABLE, -1, "", -1)
    assert set(finder.creation.created) == {OFFSETS}


async def test_find_coordinator_answers_coordinator_not_available_if_the_broker_lacks_the_clients_listener() -> None:
    finder = Finder(known(**{OFFSETS: 3}))
    assert (await finder.find(key_of(0), listener="OTHER")).error_code == NOT_AVAILABLE
    found = await finder.find(key_of(1), listener="OTHER")
    assert (found.error_code, found.port) == (ErrorCode.NONE, 9093)


async def test_the_first_find_coordinator_for_transactions_creates_the_transaction_state_topic() -> None:
    without = Finder(known())
    assert (await without.find("t", TRANSACTION)).error_code == NOT_AVAILABLE
    assert without.creation.created == [TRANSACTIONS]
    found = await Finder(known(**{TRANSACTIONS: 5})).find(key_of(3, 5), TRANSACTION)
    assert (found.error_code, found.node_id) == (NOT_AVAILABLE, -1)  # broker 4 is not alive
    found = await Finder(known(**{TRANSACTIONS: 5})).find(key_of(2, 5), TRANSACTION)
    assert (found.error_code, found.node_id) == (ErrorCode.NONE, 3)


@pytest.mark.parametrize(("kind", "version"), [(SHARE, 3), (7, 3), (SHARE, 5), (7, 6)])
async def test_find_coordinator_with_an_unknown_key_type_gets_invalid_request(kind: int, version: int) -> None:
    assert (await Finder(known()).find("k", kind, version)).error_code == ErrorCode.INVALID_REQUEST


async def test_find_coordinator_of_a_share_group_is_refused() -> None:
    assert (await Finder(known()).find("g:t:0", SHARE, 6)).error_code == NOT_AVAILABLE
