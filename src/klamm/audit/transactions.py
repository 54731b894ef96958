"""Ask the leaders of partitions which transactions are open there, and the coordinators which of these they know.

Source: TransactionsCommand.java.
"""

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
from klamm.wire.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TopicRequest,
)

MAX_TRANSACTION_MS: Final = 15 * 60_000 + 5 * 60_000
"""`transaction.max.timeout.ms` by default, and time for the coordinator to abort: what `kafka-transactions.sh
find-hanging` allows too."""
TRANSACTION_LOG: Final = "__transaction_state"
MAX_WAIT_S: Final = 5.0
"""For each broker: the audit does not depend on their answers."""
_MAX_PARTITIONS: Final = 2_000
_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The snapshot is older: another broker leads by now, or the topic is gone."""


class TransactionCheck(NamedTuple):
    """`not_checked`: broker -> why the transactions that it leads or coordinates are not known."""

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
        return await _ask_coordinators(client, snapshot, check)


async def _ask_coordinators(client: AsyncClient, snapshot: Snapshot, check: TransactionCheck) -> TransactionCheck:
    """Ask all live brokers which of the old open transactions they coordinate. Younger ones may end any time."""
    old = {t for t in check.open if is_old(snapshot, t)}
    if not old:
        return check
    producer_ids = sorted({t.producer_id for t in old})
    answers = await asyncio.gather(
        *(_ask_coordinator(client, _plaintext_address(snapshot, b), producer_ids) for b in snapshot.brokers)
    )
    coordinated: set[tuple[int, TopicPartition]] = set()
    not_checked = dict(check.not_checked)
    for broker, answer in zip(snapshot.brokers, answers, strict=True):
        if isinstance(answer, str):
            not_checked.setdefault(broker, answer)
        else:
            coordinated |= answer
    all_asked = not any(isinstance(answer, str) for answer in answers) and _is_transaction_log_online(snapshot)

    def has_coordinator(transaction: OpenTransaction) -> bool | None:
        """Whether one of the coordinators has the transaction; None where that is not known."""
        if (transaction.producer_id, transaction.partition) in coordinated:
            return True
        return False if all_asked else None

    found = [t._replace(has_coordinator=has_coordinator(t)) if t in old else t for t in check.open]
    return TransactionCheck(found, not_checked)


def is_old(snapshot: Snapshot, transaction: OpenTransaction) -> bool:
    """Whether the transaction has had no record for so long that its coordinator should have ended it."""
    return snapshot.taken_ms - transaction.last_append_ms > MAX_TRANSACTION_MS


def _is_transaction_log_online(snapshot: Snapshot) -> bool:
    """Whether each partition of `__transaction_state` has a live leader, so that no transaction is out of sight."""
    return all(s.leader in snapshot.live for p, s in snapshot.states.items() if p.topic == TRANSACTION_LOG)


async def _ask_coordinator(
    client: AsyncClient, address: Address | None, producer_ids: Sequence[int]
) -> set[tuple[int, TopicPartition]] | str:
    """The producer ids and partitions of the transactions that a broker coordinates, or why they are not known."""
    if address is None:
        return "it has no PLAINTEXT listener"
    try:
        request = ListTransactionsRequest(producer_id_filters=tuple(producer_ids))
        listed: ListTransactionsResponse = await client.ask(address, Request(ApiKey.LIST_TRANSACTIONS, request))
        if listed.error_code:
            return f"ListTransactions was refused with {code_name(listed.error_code)}"
        ids = tuple(t.transactional_id for t in listed.transaction_states)
        found: DescribeTransactionsResponse = await client.ask(
            address, Request(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(ids))
        )
    except (ConnectionLost, UnsupportedVersion) as error:
        return str(error)
    for t in found.transaction_states:
        if t.error_code not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
            return f"DescribeTransactions for {t.transactional_id} was refused with {code_name(t.error_code)}"
    return {
        (t.producer_id, TopicPartition(topic.topic, number))
        for t in found.transaction_states
        for topic in t.topics
        for number in topic.partitions
    }


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
