"""Carries ISR proposals from leaders to the controller. Source: AlterPartitionManager.scala (KIP-497).

One request is in flight at a time and carries everything that was queued before it; a partition is in the queue once.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import groupby
from typing import Final

import structlog

from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderRecoveryState
from klamm.model.topic_ids import ZERO_ID
from klamm.replication.ports import IsrAnswer, IsrProposal
from klamm.replication.replica import NO_BROKER_EPOCH
from klamm.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    BrokerState,
)

log = structlog.get_logger("replication")

RETRY_S: Final = 0.05
UNEXPECTED_RETRY_S: Final = 1.0
_REPORT: Final = "Nothing to do; if it happens again, report it with this stack trace as a bug in klamm."
NEWEST_VERSION: Final = 3
FIRST_VERSION_WITH_BROKER_EPOCHS: Final = 3
NEWEST_VERSION_WITHOUT_TOPIC_IDS: Final = 1

SendAlterPartition = Callable[[Callable[[int], AlterPartitionRequest], int], Awaitable[AlterPartitionResponse]]
"""`send(build, newest)`: find the controller, agree on a version up to `newest`, send `build(version)`; the answer.

NOT_CONTROLLER is the sender's own matter; it raises KlammError or OSError where there is no answer.
"""


class AlterPartitionManager:
    """The queue of proposals; bounded by the number of partitions this broker leads."""

    def __init__(self, broker_id: BrokerId, broker_epoch: Callable[[], int], send: SendAlterPartition) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._send = send
        self._queued: dict[TopicPartition, IsrProposal] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def submit(self, proposal: IsrProposal) -> bool:
        """Queue an ISR proposal; False where one of the same partition is still queued or in flight."""
        if self._closed or proposal.topic_partition in self._queued:
            return False
        self._queued[proposal.topic_partition] = proposal
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._send_all(), name="alter-partition")
        return True

    async def close(self) -> None:
        """Drop queued proposals and cancel the request in flight."""
        self._closed = True
        self._queued.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _send_all(self) -> None:
        """Send queued proposals, one AlterPartition at a time, until each has its answer."""
        while self._queued:
            sent = list(self._queued.values())
            try:
                is_refused = self._apply_response(sent, await self._send_proposals(sent))
            except (KlammError, OSError, TimeoutError) as failure:
                log.info(
                    "AlterPartition got no response: sent again after the backoff",
                    partitions=len(sent),
                    why=str(failure),
                    retry_s=RETRY_S,
                )
                is_refused = True
            except Exception:
                log.exception(
                    "unexpected error in AlterPartition: sent again after the backoff",
                    partitions=len(sent),
                    action=_REPORT,
                )
                await asyncio.sleep(UNEXPECTED_RETRY_S)
                continue
            if is_refused or any(self._queued.get(p.topic_partition) is p for p in sent):
                await asyncio.sleep(RETRY_S)

    async def _send_proposals(self, sent: list[IsrProposal]) -> AlterPartitionResponse:
        """Send one AlterPartition with these proposals and return the response."""
        has_ids = all(p.topic_id != ZERO_ID for p in sent)
        newest = NEWEST_VERSION if has_ids else NEWEST_VERSION_WITHOUT_TOPIC_IDS
        return await self._send(lambda version: self._build_request(sent, version), newest)

    def _build_request(self, sent: Iterable[IsrProposal], version: int) -> AlterPartitionRequest:
        """The AlterPartition request for these proposals."""
        in_order = sorted(sent, key=lambda p: p.topic_partition)
        topics = [
            AlterPartitionRequestTopicData(
                topic_name=topic, topic_id=topic_id, partitions=[_partition_data(p, version) for p in proposals]
            )
            for (topic, topic_id), proposals in groupby(in_order, lambda p: (p.topic_partition.topic, p.topic_id))
        ]
        return AlterPartitionRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=topics)

    def _apply_response(self, sent: Iterable[IsrProposal], response: AlterPartitionResponse) -> bool:
        """Pass each partition its answer; partitions without an answer stay queued.

        Returns whether the response has an error after which a proposal is made again.
        """
        if response.error_code:
            log.info(
                "controller refused AlterPartition: sent again after the backoff",
                error=ErrorCode(response.error_code).name,
                retry_s=RETRY_S,
            )
            return True
        names = {p.topic_id: p.topic_partition.topic for p in sent}
        outcomes: Counter[str] = Counter()
        is_refused = False
        for topic_partition, answer in _answers_by_partition(response, names):
            proposal = self._queued.pop(topic_partition, None)
            if proposal is not None:
                outcomes[answer.error.name] += 1
                proposal.answered(answer)
                is_refused |= answer.error is not ErrorCode.NONE and topic_partition in self._queued
        log.info("ISR changes answered", **outcomes)
        return is_refused


def _partition_data(proposal: IsrProposal, version: int) -> AlterPartitionRequestPartitionData:
    """The request's entry for one proposal."""
    with_epochs = version >= FIRST_VERSION_WITH_BROKER_EPOCHS
    return AlterPartitionRequestPartitionData(
        partition_index=proposal.topic_partition.partition,
        leader_epoch=proposal.leader_epoch,
        new_isr=() if with_epochs else proposal.isr,
        new_isr_with_epochs=[BrokerState(b, proposal.broker_epochs.get(b, NO_BROKER_EPOCH)) for b in proposal.isr]
        if with_epochs
        else [],
        leader_recovery_state=LeaderRecoveryState.RECOVERED,
        partition_epoch=proposal.partition_epoch,
    )


def _answers_by_partition(
    response: AlterPartitionResponse, names: dict[uuid.UUID, str]
) -> Iterator[tuple[TopicPartition, IsrAnswer]]:
    """The answer of each partition in the response; `names` maps topic ids to names."""
    for topic in response.topics:
        name = topic.topic_name or names.get(topic.topic_id)
        if name is None:
            continue
        for data in topic.partitions:
            yield (
                TopicPartition(name, data.partition_index),
                IsrAnswer(
                    ErrorCode(data.error_code),
                    data.leader_epoch,
                    tuple(BrokerId(b) for b in data.isr),
                    data.partition_epoch,
                ),
            )
