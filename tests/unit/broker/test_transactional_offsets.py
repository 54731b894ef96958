"""TxnOffsetCommit in every version: what is verified, what older producers are told."""

from typing import Any

import pytest
from tests.unit.broker.cluster_state import cache, partition, request, update

from klamm.broker.handlers.transactional_offsets import TXN_OFFSET_COMMIT, TransactionalOffsets
from klamm.broker.transaction_verification import TransactionalBatches
from klamm.coordinator.handlers.offsets import Errors, TransactionalCommitRequest
from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.wire import messages as m
from klamm.wire.api import ApiKey

P0 = TopicPartition("orders", 0)
OFFSETS = TopicPartition("__consumer_offsets", 4)
VERSIONS = range(TXN_OFFSET_COMMIT.min_version, TXN_OFFSET_COMMIT.max_version + 1)


class Groups:
    def __init__(self, available: ErrorCode = ErrorCode.NONE) -> None:
        self.available = available
        self.committed: list[TransactionalCommitRequest] = []

    def availability(self, group_id: str) -> ErrorCode:
        return self.available

    def partition_for(self, group_id: str) -> int:
        return {"g": 4}[group_id]

    async def commit_transactional_offsets(self, asked: TransactionalCommitRequest) -> Errors:
        self.committed.append(asked)
        return dict.fromkeys(asked.commit.offsets, ErrorCode.NONE)


class Verification:
    def __init__(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.error = error
        self.asked: list[tuple[TransactionalBatches, bool]] = []

    async def verify(self, batches: TransactionalBatches, *, knows_abortable: bool) -> dict[Any, ErrorCode]:
        self.asked.append((batches, knows_abortable))
        return {OFFSETS: self.error} if self.error else {}


class Clock:
    def now_ms(self) -> int:
        return 99


async def commit(groups: Groups, verification: Verification, version: int) -> dict[int, int]:
    """Partition -> error; partition 9 does not exist."""
    known = cache(update({"orders": [partition(0, 1)]}))
    handler = TransactionalOffsets(groups, known, Clock(), verification)  # type: ignore[arg-type]
    partitions = [m.TxnOffsetCommitRequestPartition(n, 5, 3 if version >= 2 else -1, None) for n in (0, 9)]
    member = {"generation_id": 2, "member_id": "m"} if version >= 3 else {}
    topics = [m.TxnOffsetCommitRequestTopic("orders", partitions)]
    message: Any = m.TxnOffsetCommitRequest("t", "g", 7, 2, **member, topics=topics)  # type: ignore[arg-type]
    sent = m.TxnOffsetCommitRequest.decode(message.encode(version), version)
    response = await handler.commit(request(ApiKey.TXN_OFFSET_COMMIT, version), sent)
    read = m.TxnOffsetCommitResponse.decode(response.encode(version), version)
    return {p.partition_index: p.error_code for t in read.topics for p in t.partitions}


@pytest.mark.parametrize("version", VERSIONS)
async def test_txn_offset_commit_stores_offsets_after_their_partition_is_verified(version: int) -> None:
    groups, verification = Groups(), Verification()

    errors = await commit(groups, verification, version)

    assert errors == {0: ErrorCode.NONE, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    [(batches, knows_abortable)] = verification.asked
    assert batches == TransactionalBatches("t", ProducerIdAndEpoch(7, 2), {OFFSETS: -1})
    assert knows_abortable is (version >= 4)
    [(producer, asked)] = groups.committed
    assert producer == (7, 2)
    assert (asked.member_id, asked.generation) == (("m", 2) if version >= 3 else ("", -1))
    assert {p: (o.offset, o.leader_epoch, o.metadata, o.commit_timestamp) for p, o in asked.offsets.items()} == {
        P0: (5, 3 if version >= 2 else -1, "", 99)
    }


@pytest.mark.parametrize(
    ("unverified", "answered"),
    [
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
async def test_txn_offset_commit_of_an_unverified_partition_is_refused(
    unverified: ErrorCode, answered: ErrorCode
) -> None:
    groups = Groups()
    assert (await commit(groups, Verification(unverified), 4))[0] == answered
    assert groups.committed == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_old_txn_offset_commit_versions_get_coordinator_not_available_while_the_group_loads(version: int) -> None:
    verification = Verification()
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    errors = await commit(Groups(loading), verification, version)
    assert errors[0] == (loading if version >= 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert verification.asked == []
