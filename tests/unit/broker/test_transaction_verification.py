"""No transaction begins on a partition that its coordinator does not know of (KIP-890).

The cases are those of UnifiedLogTest, ReplicaManagerTest and AddPartitionsToTxnManagerTest (3.9).
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.unit.replication.control_requests import stop

from klamm.broker.transaction_verification import TransactionalBatches, TransactionVerification
from klamm.client.errors import ConnectionLost, UnsupportedVersion
from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.log.producers import Origin
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.appending import AppendResult
from klamm.runtime.disk import Buffer
from klamm.sim.loop import SimulatedLoop
from klamm.wire.records import ControlType, EndMarker, NewRecord, build_batch, build_end_marker

PRODUCER = ProducerIdAndEpoch(7, 2)


class Coordinator:
    """Answers as it is told to; `on_ask` runs before it answers."""

    def __init__(self) -> None:
        self.error: ErrorCode | Exception = ErrorCode.NONE
        self.asked = 0
        self.on_ask: Callable[[], Awaitable[object]] | None = None

    async def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        self.asked += 1
        if self.on_ask is not None:
            await self.on_ask()
        if isinstance(self.error, Exception):
            raise self.error
        return dict.fromkeys(partitions, self.error)


class Leader:
    def __init__(self, cluster: ReplicaCluster) -> None:
        self.cluster = cluster
        self.replicas = cluster.brokers[1]
        self.coordinator = Coordinator()
        self.is_enabled = True
        self.verification = TransactionVerification(self.replicas, self.coordinator, lambda: self.is_enabled)

    async def verify(self, sequence: int = 0, *, knows_abortable: bool = True) -> Mapping[TopicPartition, ErrorCode]:
        batches = TransactionalBatches("t", PRODUCER, {P0: sequence})
        return await self.verification.verify(batches, knows_abortable=knows_abortable)

    async def append(
        self, sequence: int = 0, origin: Origin = Origin.CLIENT, *, transactional: bool = True
    ) -> ErrorCode:
        batch = build_batch(
            [NewRecord(b"v")],
            producer_id=PRODUCER.producer_id,
            producer_epoch=PRODUCER.epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        return (await self._append(batch, origin)).error

    async def end(self) -> None:
        marker = EndMarker(ControlType.ABORT, 0)
        result = await self._append(build_end_marker(marker, *PRODUCER, 0), Origin.COORDINATOR)
        assert not result.error

    async def _append(self, batch: Buffer, origin: Origin) -> AppendResult:
        return (await self.replicas.append(1, 1_000, {P0: batch}, origin))[P0]


Run = Callable[[Callable[[Leader], Awaitable[None]]], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def play(body: Callable[[Leader], Awaitable[None]]) -> None:
        async def main() -> None:
            cluster = await ReplicaCluster.on_disk(str(tmp_path))
            try:
                await cluster.elect(1)
                await body(Leader(cluster))
            finally:
                await cluster.close()

        SimulatedLoop().run(main())

    return play


def test_only_the_first_batch_of_a_transaction_is_verified_with_the_coordinator(run: Run) -> None:
    async def body(leader: Leader) -> None:
        for sequence in range(3):
            assert await leader.verify(sequence) == {}
            assert await leader.append(sequence) == ErrorCode.NONE
        assert leader.coordinator.asked == 1
        await leader.end()
        assert await leader.verify(3) == {}
        assert await leader.append(3) == ErrorCode.NONE
        assert leader.coordinator.asked == 2

    run(body)


def test_a_confirmation_that_a_batch_without_transaction_used_up_begins_no_transaction(run: Run) -> None:
    async def body(leader: Leader) -> None:
        assert await leader.verify(0) == {}
        assert await leader.append(0, transactional=False) == ErrorCode.NONE
        leader.coordinator.error = ErrorCode.INVALID_TXN_STATE
        assert await leader.verify(1) == {P0: ErrorCode.INVALID_TXN_STATE}
        assert await leader.append(1) == ErrorCode.INVALID_TXN_STATE
        assert leader.coordinator.asked == 2

    run(body)


@pytest.mark.parametrize("origin", [Origin.CLIENT, Origin.COORDINATOR])
def test_a_transactional_batch_is_refused_if_a_marker_was_written_during_its_verification(
    run: Run, origin: Origin
) -> None:
    async def body(leader: Leader) -> None:
        leader.coordinator.on_ask = leader.end
        assert await leader.verify() == {}
        assert await leader.append(origin=origin) == ErrorCode.INVALID_TXN_STATE
        leader.coordinator.on_ask = None
        assert await leader.verify() == {}
        assert await leader.append(origin=origin) == ErrorCode.NONE

    run(body)


def test_a_late_batch_of_an_open_transaction_does_not_begin_another_one_after_the_marker(run: Run) -> None:
    """It needs no confirmation when it comes, and waits, for example for that of another partition."""

    async def body(leader: Leader) -> None:
        await leader.verify(0)
        assert await leader.append(0) == ErrorCode.NONE
        assert await leader.verify(1) == {}
        await leader.end()
        assert await leader.append(1) == ErrorCode.INVALID_TXN_STATE
        assert await leader.verify(1) == {}
        assert leader.coordinator.asked == 2
        assert await leader.append(1) == ErrorCode.NONE

    run(body)


def test_a_late_batch_is_refused_also_by_a_leader_that_did_not_see_the_transaction_begin(run: Run) -> None:
    async def body(leader: Leader) -> None:
        assert await leader.append(0) == ErrorCode.NONE  # as an earlier leader did
        assert await leader.verify(1) == {}
        await leader.end()
        assert await leader.append(1) == ErrorCode.INVALID_TXN_STATE

    run(body)


def test_a_transactional_batch_is_refused_if_its_topic_was_made_anew_during_its_verification(run: Run) -> None:
    async def body(leader: Leader) -> None:
        async def make_anew() -> None:
            await stop(leader.cluster, -2, deletes=True)
            await leader.cluster.elect(1)

        leader.coordinator.on_ask = make_anew
        assert await leader.verify() == {}
        assert await leader.append() == ErrorCode.INVALID_TXN_STATE

    run(body)


def test_a_batch_is_refused_if_the_broker_stopped_leading_its_partition_during_its_verification(run: Run) -> None:
    async def body(leader: Leader) -> None:
        leader.coordinator.on_ask = lambda: leader.cluster.elect(2)
        assert await leader.verify() == {P0: ErrorCode.NOT_LEADER_OR_FOLLOWER}

    run(body)


def test_a_partition_that_the_broker_does_not_lead_yet_is_not_verified(run: Run) -> None:
    """It may lead the partition by the time the coordinator has confirmed others of the request."""

    async def body(leader: Leader) -> None:
        on_follower = TransactionVerification(leader.cluster.brokers[2], leader.coordinator, lambda: True)
        batches = TransactionalBatches("t", PRODUCER, {P0: 0})
        assert await on_follower.verify(batches, knows_abortable=True) == {P0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert (leader.coordinator.asked, on_follower.failures) == (0, 0)

    run(body)


def test_a_batch_is_refused_if_the_coordinator_does_not_confirm_its_partition(run: Run) -> None:
    async def body(leader: Leader) -> None:
        leader.coordinator.error = ErrorCode.TRANSACTION_ABORTABLE
        assert await leader.verify() == {P0: ErrorCode.TRANSACTION_ABORTABLE}
        assert await leader.verify(knows_abortable=False) == {P0: ErrorCode.INVALID_TXN_STATE}
        assert await leader.append() == ErrorCode.INVALID_TXN_STATE
        assert leader.verification.failures == 2
        assert leader.verification.times.count == 2

    run(body)


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ConnectionLost("gone"), ErrorCode.NETWORK_EXCEPTION),
    ],
)
def test_transaction_verification_errors_become_error_codes_that_producers_understand(
    run: Run, answered: ErrorCode | Exception, expected: ErrorCode
) -> None:
    async def body(leader: Leader) -> None:
        leader.coordinator.error = answered
        assert await leader.verify() == {P0: expected}

    run(body)


def test_a_transactional_batch_is_accepted_if_its_coordinators_version_cannot_verify(run: Run) -> None:
    async def body(leader: Leader) -> None:
        leader.coordinator.error = UnsupportedVersion("an older broker")
        assert await leader.verify() == {}
        assert await leader.append() == ErrorCode.NONE

    run(body)


def test_disabled_transaction_verification_sends_no_request_to_the_coordinator(run: Run) -> None:
    async def body(leader: Leader) -> None:
        leader.coordinator.error = ErrorCode.NOT_COORDINATOR
        await leader.verify()
        leader.is_enabled = False
        assert await leader.verify() == {}
        assert await leader.append() == ErrorCode.NONE
        assert leader.coordinator.asked == 1

    run(body)


def test_a_batch_is_refused_while_an_earlier_sequence_that_failed_verification_is_missing(run: Run) -> None:
    async def body(leader: Leader) -> None:
        leader.coordinator.error = ErrorCode.NOT_COORDINATOR
        await leader.verify(0)
        leader.coordinator.error = ErrorCode.NONE
        assert await leader.verify(1) == {}
        assert await leader.append(1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await leader.append(0) == ErrorCode.NONE
        assert await leader.append(1) == ErrorCode.NONE

    run(body)
