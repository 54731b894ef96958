"""Before a transaction's first batch on a partition its coordinator has to confirm the partition (KIP-890).

Otherwise a late batch could open a transaction that nobody ends. Source: ReplicaManager.handleProduceAppend (3.9).
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

import structlog

from klamm.client.errors import ConnectionLost, UnsupportedVersion
from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.log.producers import Verification
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.ports import PartitionRefused
from klamm.telemetry.meters import Timer

log = structlog.get_logger("transactions")

Errors = dict[TopicPartition, ErrorCode]


class Channel(Protocol):
    async def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: list[TopicPartition]
    ) -> Errors:
        """Ask the coordinator whether the partitions are in the producer's open transaction.

        Returns an error code for each partition.
        """


class ReplicaVerifications(Protocol):
    def start_verification(
        self, topic_partition: TopicPartition, producer_id: int, epoch: int, sequence: int
    ) -> Verification | None:
        """Return what must be verified before the transactional batch is appended.

        None where its transaction is open on the partition. Raises PartitionRefused where this broker does not lead it.
        """


class TransactionalBatches(NamedTuple):
    """What one producer wants to append; `sequences`: partition -> the batch's base sequence."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    sequences: Mapping[TopicPartition, int]


class TransactionVerification:
    """`is_enabled`: transaction.partition.verification.enable, which may change at run time."""

    def __init__(self, replicas: ReplicaVerifications, channel: Channel, is_enabled: Callable[[], bool]) -> None:
        self._replicas = replicas
        self._channel = channel
        self._is_enabled = is_enabled
        self.failures = 0
        """Partitions that were not confirmed."""
        self.times = Timer()
        """From asking a coordinator to its answer."""

    async def verify(self, batches: TransactionalBatches, *, knows_abortable: bool) -> Errors:
        """Return the partitions to which the batches must not be appended, each with the coordinator's error.

        A partition that this broker does not lead has the error that says so: it may begin to lead it meanwhile, and
        nobody would have confirmed the batch. `knows_abortable` tells whether the client understands
        TRANSACTION_ABORTABLE.
        """
        started: dict[TopicPartition, Verification] = {}
        not_led = self._start(batches, started)
        if not started:
            return not_led
        if not self._is_enabled():
            for verification in started.values():
                verification.is_verified = True
            return not_led
        loop = asyncio.get_running_loop()
        began = loop.time()
        errors = await self._ask(batches, list(started))
        self.times.observe((loop.time() - began) * 1000)
        # a log that was made anew meanwhile has no verification yet: it would take the batch without one
        not_led |= self._start(batches, {})
        for partition, verification in started.items():
            if not errors.get(partition):
                verification.is_verified = True
        refused = {p: _for_producers(error, knows_abortable) for p, error in errors.items() if error}
        self.failures += len(refused)
        return not_led | refused

    def _start(self, batches: TransactionalBatches, started: dict[TopicPartition, Verification]) -> Errors:
        """Put what has to be verified into `started`, by partition; returns the errors of those not led here."""
        producer = batches.producer
        errors: Errors = {}
        for partition, sequence in batches.sequences.items():
            try:
                found = self._replicas.start_verification(partition, producer.producer_id, producer.epoch, sequence)
            except PartitionRefused as refusal:
                errors[partition] = refusal.code
                continue
            if found is not None:
                started[partition] = found
        return errors

    async def _ask(self, batches: TransactionalBatches, partitions: list[TopicPartition]) -> Errors:
        """Ask the coordinator to verify the partitions; returns its errors.

        A coordinator of an older Kafka cannot verify: the batches are then accepted without it.
        """
        try:
            return await self._channel.verify(batches.transactional_id, batches.producer, partitions)
        except ConnectionLost as error:
            log.info(
                "a transaction was not verified: no answer from its coordinator; its producer tries again",
                transactional_id=batches.transactional_id,
                reason=str(error),
            )
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        except UnsupportedVersion as error:
            log.warning(
                "transaction accepted without verification: its coordinator is too old to verify it",
                transactional_id=batches.transactional_id,
                reason=str(error),
            )
            return {}


def _for_producers(error: ErrorCode, knows_abortable: bool) -> ErrorCode:
    """Return the coordinator's error in the form that producers understand.

    `knows_abortable` tells whether the producer knows TRANSACTION_ABORTABLE.
    """
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    is_hidden = error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable
    return ErrorCode.INVALID_TXN_STATE if is_hidden or error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else error


RETRIED_AS_NOT_ENOUGH_REPLICAS: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""What every producer retries only under this name."""
