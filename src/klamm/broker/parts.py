"""The parts of a running node, as one frozen set. `assembly.py` builds it."""

from dataclasses import dataclass

from klamm.broker.config_changes import ConfigChanges
from klamm.broker.context import NodeContext
from klamm.broker.controller_channel import ControllerChannel
from klamm.broker.features import Features
from klamm.broker.handlers.fetch import Fetch
from klamm.broker.journal_topic import JournalTopic
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.producer_ids import ProducerIds
from klamm.broker.replication_throttles import ReplicationThrottles
from klamm.broker.transaction_verification import TransactionVerification
from klamm.controller.controller import Controller
from klamm.coordinator.coordinator import GroupCoordinator
from klamm.coordinator.transactions.coordinator import TransactionCoordinator
from klamm.log.cleaner.cleaner import LogCleaner
from klamm.log.manager import LogManager
from klamm.log.repair.scrubber import LogScrubber
from klamm.replication.record_repair import RecordRepair
from klamm.replication.replica_manager import ReplicaManager
from klamm.telemetry.journal import Journal


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that request handlers, metrics and the node itself need."""

    context: NodeContext
    logs: LogManager
    cleaner: LogCleaner
    scrubber: LogScrubber
    repair: RecordRepair
    throttles: ReplicationThrottles
    cache: MetadataCache
    channel: ControllerChannel
    journal: Journal
    controller: Controller
    features: Features
    replicas: ReplicaManager
    fetch: Fetch
    producer_ids: ProducerIds
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    verification: TransactionVerification
    config_changes: ConfigChanges
    journal_topic: JournalTopic | None
