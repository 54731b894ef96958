"""Ask the leaders of partitions which transactions are open there. Source: TransactionsCommand.java."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from klamm.audit.snapshot import OpenTransaction, Snapshot
from klamm.client.asynchronous import AsyncClient, AsyncSettings
from klamm.client.errors import ConnectionLost, UnsupportedVersion, code_name
from klamm.client.versions import Request
from klamm.model.brokers import SecurityProtocol
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.main_loop import run_loop
from klamm.runtime.world import World, real_world
from klamm.wire.api import ApiKey
from klamm.wire.messages import DescribeProducersRequest, DescribeProducersResponse, TopicRequest

MAX_WAIT_S: Final = 5.0
"""For each broker: the audit does not depend on their answers."""
_MAX_PARTITIONS: Final = 2_000
_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The snapshot is older: another broker leads by now, or the topic is gone."""


class TransactionCheck(NamedTuple):
    """`not_checked`: broker -> why the transactions on partitions that it leads are not known."""

    open: list[OpenTransaction]
    not_checked: dict[BrokerId, str]


def check_transactions(snapshot: Snapshot, timeout_s: float) -> TransactionCheck:
    """Ask the leader of each partition for its open transactions."""
    return run_loop(_ask_all_leaders(real_world(), snapshot, min(timeout_s, MAX_WAIT_S)))


async def _ask_all_leaders(world: World, snapshot: Snapshot, timeout_s: float) -> TransactionCheck:
    """Ask each live leader for the open transactions of its partitions, and collect the answers."""
    led: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for topic_partition, state in snapshot.states.items():
        if state.leader in snapshot.live:
            led[state.leader].append(topic_partition)
    check = TransactionCheck([], {})
    async with AsyncClient(world, (), AsyncSettings("klamm-audit", timeout_s, timeout_s)) as client:
        results = await asyncio.gather(
            *(_ask_leader(client, _plaintext_address(snapshot, broker), led[broker]) for broker in led)
        )
    for broker, result in zip(led, results, strict=True):
        if isinstance(result, str):
            check.not_checked[broker] = result
        else:
            check.open.extend(result)
    return check


def _plaintext_address(snapshot: Snapshot, broker: BrokerId) -> Address | None:
    """Return the address of the broker's first PLAINTEXT listener; None where it has none."""
    for endpoint in snapshot.brokers[broker].broker.endpoints:
        if endpoint.security_protocol is SecurityProtocol.PLAINTEXT:
            return Address(endpoint.host, endpoint.port)
    return None


async def _ask_leader(
    client: AsyncClient, address: Address | None, partitions: Sequence[TopicPartition]
) -> list[OpenTransaction] | str:
    """The open transactions of a leader's partitions, or why they are not known."""
    if address is None:
        return "it has no PLAINTEXT listener"
    found: list[OpenTransaction] = []
    try:
        for start in range(0, len(partitions), _MAX_PARTITIONS):
            request = Request(
                ApiKey.DESCRIBE_PRODUCERS, _describe_producers_request(partitions[start : start + _MAX_PARTITIONS])
            )
            found.extend(_open_transactions(await client.ask(address, request)))
    except (ConnectionLost, UnsupportedVersion, _Refused) as error:
        return str(error)
    return found


def _describe_producers_request(partitions: Sequence[TopicPartition]) -> DescribeProducersRequest:
    """Return the DescribeProducers request for these partitions."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        by_topic[topic].append(partition)
    return DescribeProducersRequest([TopicRequest(topic, tuple(indexes)) for topic, indexes in by_topic.items()])


class _Refused(Exception):
    """The broker answers with an error that is not about a partition that moved."""


def _open_transactions(answer: DescribeProducersResponse) -> Iterator[OpenTransaction]:
    """Yield each open transaction of the response. Partitions that moved are skipped, other errors are raised."""
    for topic in answer.topics:
        for partition in topic.partitions:
            topic_partition = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code and partition.error_code not in _MOVED:
                raise _Refused(
                    f"DescribeProducers for {topic_partition} was refused with {code_name(partition.error_code)}"
                )
            for producer in partition.active_producers:
                start = producer.current_txn_start_offset
                if start >= 0:
                    yield OpenTransaction(topic_partition, producer.producer_id, start, producer.last_timestamp)
