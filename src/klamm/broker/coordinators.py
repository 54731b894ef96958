"""The coordinators of a node, and what they need of it. They take over partitions as the controller makes it leader."""

from klamm.broker.context import NodeContext
from klamm.broker.leadership_check import LeadershipCheck
from klamm.broker.lifecycle import Lifecycle, Step
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.producer_ids import ProducerIds
from klamm.broker.settings import group_settings, transaction_settings
from klamm.broker.transaction_channels import TransactionMarkers, VerificationChannel
from klamm.broker.transaction_verification import TransactionVerification
from klamm.client.asynchronous import AsyncClient, AsyncSettings
from klamm.coordinator.coordinator import GroupCoordinator
from klamm.coordinator.decision_journal import DecisionJournal
from klamm.coordinator.replicated_log import ReplicatedLog
from klamm.coordinator.topic_partitions import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from klamm.coordinator.transactions.coordinator import TransactionCoordinator
from klamm.coordinator.transactions.transaction import Partitions
from klamm.replication.replica_manager import ReplicaManager
from klamm.runtime.memory import LongWork
from klamm.runtime.time_slices import TimeSlices
from klamm.telemetry.journal import Journal


def build_decision_journal(journal: Journal, lifecycle: Lifecycle) -> DecisionJournal:
    """What the coordinators write their decisions to; closed after them, so that the last decisions are kept."""
    decisions = DecisionJournal(journal)
    lifecycle.add("coordinators' journal", Step(close=decisions.close))
    return decisions


def build_leadership_check(context: NodeContext, replicas: ReplicaManager, lifecycle: Lifecycle) -> LeadershipCheck:
    """Build what the coordinators ask before they answer from memory."""
    check = LeadershipCheck(context.broker_id, replicas, context.store)
    lifecycle.add("leadership check", Step(close=check.close))
    return check


def build_groups(
    context: NodeContext,
    replicas: ReplicaManager,
    check: LeadershipCheck,
    journal: DecisionJournal,
    lifecycle: Lifecycle,
) -> GroupCoordinator:
    """Build the group coordinator, which loads the groups of a partition once this broker leads the partition."""
    offsets_log = ReplicatedLog(replicas, OFFSETS_TOPIC, check.confirm)
    groups = GroupCoordinator(
        context.world, group_settings(context.config), offsets_log, TimeSlices(LongWork()), journal
    )

    async def start() -> None:
        """Start the group coordinator with the partition count of `__consumer_offsets`.

        The count is read from ZooKeeper; before the topic exists it is `offsets.topic.num.partitions`.
        """
        stored = await context.store().read_partition_count(OFFSETS_TOPIC)
        groups.start(stored or context.config.offsets_topic_num_partitions)

    lifecycle.add("group coordinator", Step(start, groups.close))
    return groups


def build_transactions(
    context: NodeContext,
    cache: MetadataCache,
    replicas: ReplicaManager,
    check: LeadershipCheck,
    producer_ids: ProducerIds,
    journal: DecisionJournal,
    lifecycle: Lifecycle,
) -> tuple[TransactionCoordinator, TransactionVerification]:
    """Build the transaction coordinator, and the part that verifies transactions with other coordinators."""
    timeout_s = context.config.request_timeout_ms / 1000

    def build_client(purpose: str) -> AsyncClient:
        """Return a client with its own connections: a broker answers the requests of a connection in order."""
        client = AsyncClient(context.world, (), AsyncSettings(f"broker-{context.broker_id}-{purpose}", timeout_s))
        lifecycle.add(f"{purpose} client", Step(close=client.close))
        return client

    async def find_deleted(partitions: Partitions) -> Partitions:
        """Those of the partitions that ZooKeeper says are deleted. Raises KlammError where it does not answer."""
        return await context.store().deleted_partitions(partitions, context.config.delete_topic_enable)

    # a marker may wait for slow replicas, and produce requests wait for verifications
    markers = TransactionMarkers(cache, build_client("transactions"), find_deleted)
    channel = VerificationChannel(cache, build_client("verification"))
    lifecycle.add("transaction verification", Step(close=channel.close))
    lifecycle.add("transaction markers", Step(close=markers.close))
    coordinator = TransactionCoordinator(
        transaction_settings(context.config),
        ReplicatedLog(replicas, TRANSACTIONS_TOPIC, check.confirm),
        context.world.clock,
        producer_ids,
        markers,
        TimeSlices(LongWork()),
        journal,
    )

    async def start() -> None:
        """Start the transaction coordinator with the partition count of `__transaction_state`.

        The count is read from ZooKeeper; before the topic exists it comes from the broker's config.
        """
        stored = await context.store().read_partition_count(TRANSACTIONS_TOPIC)
        coordinator.start(stored or context.config.transaction_state_log_num_partitions)

    lifecycle.add("transaction coordinator", Step(start, coordinator.close))
    verification = TransactionVerification(
        replicas, channel, lambda: context.dynamic.current.transaction_partition_verification_enable
    )
    return coordinator, verification
