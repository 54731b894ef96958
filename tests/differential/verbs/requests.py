"""Verbs: requests of brokers to the controller, and their responses to its requests."""

import uuid
from collections.abc import Sequence
from typing import Any

from tests.differential import normalize
from tests.differential.testbed import Testbed

from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
    ControlledShutdownRequest,
)


class RequestVerbs(Testbed):
    async def alter_isr(
        self,
        topic: str,
        broker: int,
        isr: Sequence[int],
        leader_epoch: int,
        partition_epoch: int,
        *,
        partition: int = 0,
        version: int = 3,
        recovery: int = 0,
        stale_broker: bool = False,
    ) -> Any:
        """A broker sends AlterPartition with these epochs."""
        members = [BrokerState(b, -1) for b in isr] if version >= 3 else []
        asked = AlterPartitionRequestPartitionData(
            partition_index=partition,
            leader_epoch=leader_epoch,
            new_isr=tuple(isr) if version < 3 else (),
            new_isr_with_epochs=members,
            leader_recovery_state=recovery,
            partition_epoch=partition_epoch,
        )
        topic_id = self.topic_id(topic)
        named = AlterPartitionRequestTopicData(
            topic_name=topic if version < 2 else "", topic_id=topic_id if version >= 2 else uuid.UUID(int=0),
            partitions=[asked],
        )  # fmt: skip
        epoch = self.broker_epoch(broker, stale_broker)
        answer = await self.ask(ApiKey.ALTER_PARTITION, version, AlterPartitionRequest(broker, epoch, [named]))
        text = normalize.alter_partition_answer(answer, self.topic_ids)
        flags = f"{f', recovery {recovery}' if recovery else ''}{', a stale broker' if stale_broker else ''}"
        what = (
            f"{broker} asks v{version} for {topic}-{partition} ISR {isr} at {leader_epoch} / {partition_epoch}{flags}"
        )
        await self.end_step(what, text)
        return text

    async def leader_asks(
        self,
        topic: str,
        isr: Sequence[int],
        partition: int = 0,
        *,
        leader_epochs_off: int = 0,
        partition_epochs_off: int = 0,
        version: int = 3,
        recovery: int = 0,
        stale_broker: bool = False,
    ) -> Any:
        """The current leader sends AlterPartition; its epochs may be off by some numbers."""
        state = await self.state(topic, partition)
        if state is None or state.leader not in self.brokers:
            return None
        return await self.alter_isr(
            topic,
            state.leader,
            isr,
            state.leader_epoch + leader_epochs_off,
            state.partition_epoch + partition_epochs_off,
            partition=partition,
            version=version,
            recovery=recovery,
            stale_broker=stale_broker,
        )

    async def controlled_shutdown(self, broker: int, *, stale_broker: bool = False, version: int = 3) -> Any:
        epoch = self.broker_epoch(broker, stale_broker) if version >= 2 else -1
        request = ControlledShutdownRequest(broker, epoch)
        text = normalize.shutdown_answer(await self.ask(ApiKey.CONTROLLED_SHUTDOWN, version, request))
        await self.end_step(f"{broker} asks v{version} to shut down{', a stale broker' if stale_broker else ''}", text)
        return text

    # ---- how a broker answers from now on; no steps

    async def hold(self, broker: int, api_name: str) -> None:
        """The broker receives requests of this API and answers none until `release`."""
        self.brokers[broker].hold(api_name)

    async def lose_answer(self, broker: int, api_name: str) -> None:
        """The broker closes the connection once instead of answering."""
        self.brokers[broker].break_once(api_name)

    async def fail(self, broker: int, api_name: str, error: int) -> None:
        """The broker answers this API with an error from now on; 0 ends that."""
        self.brokers[broker].errors[api_name] = error

    async def release(self, broker: int, api_name: str) -> None:
        """The broker answers the held requests."""
        self.brokers[broker].release(api_name)
        await self.end_step(f"{broker} answers {api_name} at last")
