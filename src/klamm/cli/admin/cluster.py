"""Read a cluster's metadata and its running reassignments; ask all of its brokers at once."""

import asyncio
from collections.abc import Sequence
from typing import Any

from klamm.cli.admin.client import Admin, CannotAsk
from klamm.cli.admin.refusals import Refusal
from klamm.client.errors import code_name
from klamm.client.versions import Build
from klamm.model.assignment import ReplicaAssignment
from klamm.model.cluster import Address, Broker, Cluster, Partition, Topic
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.wire.api import ApiKey
from klamm.wire.codec import WireMessage
from klamm.wire.messages import (
    ListPartitionReassignmentsRequest,
    MetadataRequest,
    MetadataRequestTopic,
)


async def read_cluster(admin: Admin, names: Sequence[str] | None = None, of: BrokerId | None = None) -> Cluster:
    """Read metadata from any broker, or from broker `of`: all topics, or those of `names` that exist."""
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    asked = admin.ask(ApiKey.METADATA, request) if of is None else admin.ask_broker(of, ApiKey.METADATA, request)
    answer = await asked
    if of is None:
        admin.update_brokers(answer)
    return Cluster(
        BrokerId(answer.controller_id),
        {BrokerId(b.node_id): Broker(Address(b.host, b.port), b.rack) for b in answer.brokers},
        {t.name: _topic_from_response(t) for t in sorted(answer.topics, key=lambda t: str(t.name)) if _exists(t)},
    )


def _exists(topic: Any) -> bool:
    """Whether a topic of a Metadata response exists; its partitions may be without a leader."""
    return topic.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE) and topic.name is not None


def _topic_from_response(found: Any) -> Topic:
    """Return the topic of a Metadata response, with its partitions in order."""
    partitions = {
        p.partition_index: Partition(
            BrokerId(p.leader_id), tuple(p.replica_nodes), tuple(p.isr_nodes), tuple(p.offline_replicas)
        )
        for p in sorted(found.partitions, key=lambda p: int(p.partition_index))
    }
    return Topic(found.name, None if found.topic_id == ZERO_ID else found.topic_id, found.is_internal, partitions)


async def read_moves(admin: Admin) -> dict[TopicPartition, ReplicaAssignment]:
    """Read the running reassignments, sorted by partition. Raises CannotAsk."""
    request = ListPartitionReassignmentsRequest(timeout_ms=admin.left_ms, topics=None)
    answer = await admin.ask_controller(ApiKey.LIST_PARTITION_REASSIGNMENTS, request)
    if answer.error_code:
        raise CannotAsk(
            f"Cannot list reassignments: {answer.error_message or 'no reason given'} ({code_name(answer.error_code)})."
        )
    found = {
        TopicPartition(t.name, p.partition_index): ReplicaAssignment(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for t in answer.topics
        for p in t.partitions
    }
    return dict(sorted(found.items()))


async def ask_every_broker(
    admin: Admin, key: ApiKey, message: WireMessage | Build, what: str
) -> tuple[dict[BrokerId, Any], list[Refusal]]:
    """Send the request to each broker; returns responses by broker id, and errors of missing or incomplete ones.

    `what` names what the brokers list, for the texts of the errors.
    """
    await admin.look()

    async def ask(broker: BrokerId) -> Any:
        """Return the broker's response, or the error where it cannot be asked."""
        try:
            return await admin.ask_broker(broker, key, message)
        except CannotAsk as error:
            return error

    brokers = sorted(admin.brokers)
    answers: dict[BrokerId, Any] = {}
    refused: list[Refusal] = []
    for broker, answer in zip(brokers, await asyncio.gather(*map(ask, brokers)), strict=True):
        if isinstance(answer, CannotAsk):
            refused.append(Refusal(f"broker {broker}", ErrorCode.NETWORK_EXCEPTION, str(answer)))
            continue
        if answer.error_code:
            text = f"the list of this broker's {what} is incomplete. Try again."
            refused.append(Refusal(f"broker {broker}", answer.error_code, text))
        answers[broker] = answer
    return answers, refused
