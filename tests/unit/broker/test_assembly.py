"""The parts of a node and their order; a new part takes one line."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.memory_zookeeper import MemoryEnsemble
from tests.unit.broker.cluster_state import partition, update
from tests.unit.broker.node_parts import build, context

from klamm.broker.assembly import _read_node_context
from klamm.broker.lifecycle import Lifecycle
from klamm.client.asynchronous import AsyncClient
from klamm.client.versions import Request
from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.coordinator.transactions.ports import Marker
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import AddPartitionsToTxnResponse
from klamm.zk.configs import StoredConfig
from klamm.zk.store import Store

START_ORDER = [
    "listeners", "log directory failures", "logs", "journal",
    "registration", "metadata cache", "features", "controller", "log housekeeping", "log cleaner", "controller channel",
    "stale topics", "replicas", "record repair", "log scrubber", "coordinators' journal", "leadership check",
    "group coordinator",
    "producer ids", "transactions client", "verification client",
    "transaction verification", "transaction markers", "transaction coordinator", "config changes",
    "controller handover", "registration watch", "metrics endpoint", "request server",
]  # fmt: skip


async def test_the_components_of_a_node_start_in_a_fixed_order_with_the_request_server_last(tmp_path: Path) -> None:
    _, lifecycle = build(tmp_path)
    assert lifecycle.names == START_ORDER


@pytest.mark.parametrize(
    ("line", "part"),
    [("klamm.journal.topic=journal", "journal topic"), ("inter.broker.protocol.version=2.6", "ISR changes")],
)
async def test_optional_components_of_a_node_are_built_only_when_their_config_is_set(
    tmp_path: Path, line: str, part: str
) -> None:
    _, lifecycle = build(tmp_path, line)
    assert sorted(set(lifecycle.names) - set(START_ORDER)) == [part]


async def test_a_node_notes_the_next_config_change_before_it_reads_configs(tmp_path: Path) -> None:
    node = context(tmp_path)
    store = Store(MemoryEnsemble().client())
    await store.create_top_level_paths()
    await store.configs.announce("topics/orders")
    reads: list[int] = []

    async def read(entity_type: str, entity: str) -> StoredConfig:
        reads.append(await store.configs.next_change_number())
        await store.configs.announce(f"{entity_type}/{entity}")
        return StoredConfig({}, 0)

    sessions: Any = SimpleNamespace(store=store)
    store.configs.read = read  # type: ignore[method-assign]

    started = await _read_node_context(node.world, node.config, node.log_levels, node.status, sessions)

    assert (started.first_config_change, reads) == (1, [1, 2])


async def test_transactions_are_verified_while_markers_wait_for_the_replicas_of_the_same_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker answers the requests of a connection in order."""
    asked: dict[ApiKey, AsyncClient] = {}

    async def ask(client: AsyncClient, _: Address, request: Request) -> AddPartitionsToTxnResponse:
        asked[request.key] = client
        if request.key == ApiKey.WRITE_TXN_MARKERS:
            await asyncio.Event().wait()
        return AddPartitionsToTxnResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    monkeypatch.setattr(AsyncClient, "ask", ask)
    parts, _ = build(tmp_path)
    parts.cache.update(update({"__transaction_state": [partition(0, 2)]}))
    orders = TopicPartition("orders", 0)
    marker = Marker(1, 0, is_commit=True, coordinator_epoch=0, partitions=frozenset((orders,)))
    markers, leader = parts.transactions._context.markers, Address("h2", 9092)
    writing = asyncio.ensure_future(markers.write_marker(leader, marker))

    errors = await parts.verification._channel.verify("id", ProducerIdAndEpoch(1, 0), [orders])

    assert (errors, writing.done()) == ({orders: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}, False)
    assert asked[ApiKey.WRITE_TXN_MARKERS] is not asked[ApiKey.ADD_PARTITIONS_TO_TXN]
    writing.cancel()


class GroupCoordinator:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    async def close(self) -> None:
        self.calls.append("close")


async def test_a_component_added_to_a_node_is_started_and_closed_with_the_node() -> None:
    lifecycle = Lifecycle()
    coordinator = lifecycle.add("group coordinator", GroupCoordinator())
    await lifecycle.start()
    await lifecycle.close()
    assert coordinator.calls == ["start", "close"]
