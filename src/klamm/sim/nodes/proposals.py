"""The ISRs that a simulated leader proposes, as an AlterPartition request."""

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)

NEWEST_ALTER_PARTITION: Final = 3


class ProposedIsr(NamedTuple):
    """The ISR that a leader requests with AlterPartition, with the epochs of the first attempt."""

    topic_id: UUID
    leader_epoch: int
    partition_epoch: int
    isr: tuple[BrokerId, ...]


def alter_partition_request(
    broker: BrokerId, broker_epoch: int, requested: Mapping[TopicPartition, ProposedIsr], version: int
) -> AlterPartitionRequest:
    """Build the AlterPartition request for these proposed ISRs."""
    topics: dict[tuple[str, UUID], AlterPartitionRequestTopicData] = {}
    for p, proposal in requested.items():
        data = AlterPartitionRequestPartitionData(
            partition_index=p.partition,
            leader_epoch=proposal.leader_epoch,
            partition_epoch=proposal.partition_epoch,
        )
        if version < NEWEST_ALTER_PARTITION:
            data.new_isr = proposal.isr
        else:
            data.new_isr_with_epochs = [BrokerState(broker_id=b, broker_epoch=-1) for b in proposal.isr]
        key = p.topic, proposal.topic_id
        topics.setdefault(key, AlterPartitionRequestTopicData(*key)).partitions.append(data)
    return AlterPartitionRequest(broker, broker_epoch, list(topics.values()))
