"""Control requests: LeaderAndIsr, UpdateMetadata, StopReplica. Source: KafkaApis.scala, ReplicaManager.scala."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache, unknown_protocols
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.replication.replica_manager import ReplicaManager
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

LEADER_AND_ISR: Final = Offered(ApiKey.LEADER_AND_ISR, 0, 7)
STOP_REPLICA: Final = Offered(ApiKey.STOP_REPLICA, 0, 4)
UPDATE_METADATA: Final = Offered(ApiKey.UPDATE_METADATA, 0, 8)
log = structlog.get_logger("node")

OnPartitionsDeleted = Callable[[Sequence[TopicPartition]], "asyncio.Task[None] | None"]
"""Returns a task where the rest of the work takes longer."""


class Control:
    """Serves the controller's requests."""

    def __init__(
        self,
        cache: MetadataCache,
        replicas: ReplicaManager,
        on_topic_gone: Callable[[str], None] = lambda _topic: None,
        on_partitions_deleted: OnPartitionsDeleted = lambda _partitions: None,
    ) -> None:
        """`on_topic_gone` gets each topic that was deleted, `on_partitions_deleted` the partitions; none may raise."""
        self._cache = cache
        self._replicas = replicas
        self._on_topic_gone = on_topic_gone
        self._on_partitions_deleted = on_partitions_deleted

    async def leader_and_isr(self, request: Request, message: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Answer LeaderAndIsr: make this broker leader or follower of the partitions that the controller names."""
        return await self._replicas.become_leader_or_follower(message, request.version)

    async def stop_replica(self, request: Request, message: StopReplicaRequest) -> StopReplicaResponse:
        """Answer StopReplica: stop the replicas that the controller names, and delete those it says to delete."""
        return await self._replicas.stop_replicas(message, request.version)

    def update_metadata(
        self, request: Request, message: UpdateMetadataRequest
    ) -> UpdateMetadataResponse | Awaitable[UpdateMetadataResponse]:
        """Answer UpdateMetadata: put what the controller sends into the metadata cache.

        Deleted partitions and a changed set of live brokers are reported to the parts that depend on them. Deletions
        are finished before the response, as in Kafka: the controller's next request may make the topic anew.
        """
        refusal = self._replicas.check_update_metadata(message.broker_epoch, message.controller_epoch)
        if refusal:
            return UpdateMetadataResponse(error_code=refusal)
        if unknown := unknown_protocols(message):
            log.error(
                "UpdateMetadata refused with INVALID_REQUEST: it names endpoints with unknown security protocols",
                controller=message.controller_id,
                endpoints=unknown,
                action="Check the version of the controller, and who else may send requests of a controller.",
            )
            return UpdateMetadataResponse(error_code=ErrorCode.INVALID_REQUEST)
        before = self._cache.brokers.keys()
        deleted = self._cache.update(message)
        for topic in dict.fromkeys(p.topic for p in deleted):
            if not self._cache.has_topic(topic):
                self._on_topic_gone(topic)
        removal = self._on_partitions_deleted(deleted)
        if self._cache.brokers.keys() != before:
            self._replicas.on_live_brokers_changed()
        return UpdateMetadataResponse(error_code=ErrorCode.NONE) if removal is None else _answer_after(removal)


async def _answer_after(work: "asyncio.Task[None]") -> UpdateMetadataResponse:
    """The response to UpdateMetadata, once the work has ended; an error of it is logged by whoever started it."""
    await asyncio.wait([work])
    return UpdateMetadataResponse(error_code=ErrorCode.NONE)
