"""Every metric of a node, one row each. `make docs` generates `docs/metrics.md` from it.

Names are those of Kafka's beans in the Prometheus JMX exporter with its example configuration for Kafka
(`kafka-2_0_0.yml`): lower case, `PerSec` counters end in `_total`, timers are summaries in ms.
"""

from typing import Final, NamedTuple

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
SUMMARY: Final = "summary"


class MetricRow(NamedTuple):
    name: str  # a counter's without `_total`
    kind: str
    unit: str
    labels: tuple[str, ...]
    source: str  # the bean in Kafka; "" where the metric is klamm's own
    sentence: str


def _controller(name: str, sentence: str, unit: str = "") -> MetricRow:
    """The row of a gauge of the controller."""
    bean = f"kafka.controller:type=KafkaController,name={name}"
    return MetricRow(f"kafka_controller_kafkacontroller_{name.lower()}", GAUGE, unit, (), bean, sentence)


def _state_timer(name: str, sentence: str) -> MetricRow:
    """The row of a timer for the events of one controller state."""
    bean = f"kafka.controller:type=ControllerStats,name={name}"
    return MetricRow(f"kafka_controller_controllerstats_{name.lower()}", SUMMARY, "ms", (), bean, sentence)


def _replicas(name: str, sentence: str) -> MetricRow:
    """The row of a gauge of the replica manager."""
    bean = f"kafka.server:type=ReplicaManager,name={name}"
    return MetricRow(f"kafka_server_replicamanager_{name.lower()}", GAUGE, "", (), bean, sentence)


def _groups(name: str, sentence: str) -> MetricRow:
    """The row of a gauge of the group coordinator."""
    bean = f"kafka.coordinator.group:type=GroupMetadataManager,name={name}"
    return MetricRow(f"kafka_coordinator_group_groupmetadatamanager_{name.lower()}", GAUGE, "", (), bean, sentence)


def _markers(name: str, sentence: str) -> MetricRow:
    """The row of a gauge of the transaction markers that a coordinator writes."""
    bean = f"kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name={name}"
    metric = f"kafka_coordinator_transaction_transactionmarkerchannelmanager_{name.lower()}"
    return MetricRow(metric, GAUGE, "", (), bean, sentence)


def _group_count(name: str, attribute: str, sentence: str) -> MetricRow:
    """The row of a counter of the group coordinator, from which Prometheus computes a rate."""
    bean = f"kafka.server:type=group-coordinator-metrics,attribute={attribute}"
    return MetricRow(f"kafka_server_group_coordinator_metrics_{name}", COUNTER, "", (), bean, sentence)


def _throttled(side: str, sentence: str) -> MetricRow:
    """The row of the byte rate of throttled replication, on the leader's or the follower's side."""
    bean = f"kafka.server:type={side}Replication,attribute=byte-rate"
    return MetricRow(f"kafka_server_{side.lower()}replication_byterate", GAUGE, "bytes", (), bean, sentence)


def _cleaner(kind: str, name: str, sentence: str, unit: str = "", labels: tuple[str, ...] = ()) -> MetricRow:
    """The row of a gauge of the log cleaner."""
    bean = f"kafka.log:type={kind},name={name}" + "".join(f",{label}=(.+)" for label in labels)
    return MetricRow(f"kafka_log_{kind.lower()}_{name.lower().replace('-', '_')}", GAUGE, unit, labels, bean, sentence)


def _per_second(room: str, kind: str, name: str, sentence: str, unit: str = "") -> MetricRow:
    """The row of a counter, from which Prometheus computes a rate."""
    bean = f"kafka.{room}:type={kind},name={name}PerSec"
    return MetricRow(f"kafka_{room}_{kind.lower()}_{name.lower()}", COUNTER, unit, (), bean, sentence)


_MANAGER: Final = "kafka.controller:type=ControllerChannelManager,name="
_EVENTS: Final = "kafka.controller:type=ControllerEventManager,name="

TABLE: Final[dict[str, MetricRow]] = {
    row.name: row
    for row in (
        _controller("ActiveControllerCount", "1 on the node that is controller, else 0: the cluster's sum must be 1."),
        _controller("OfflinePartitionsCount", "Partitions without a live leader, of topics not being deleted."),
        _controller("PreferredReplicaImbalanceCount", "Partitions that are not led by their preferred replica."),
        _controller("ControllerState", "State of the controller, by Kafka's numbers; 0 is idle."),
        _controller("GlobalTopicCount", "Topics of the cluster."),
        _controller("GlobalPartitionCount", "Partitions of the cluster."),
        _controller("TopicsToDeleteCount", "Topics queued for deletion."),
        _controller("ReplicasToDeleteCount", "Replicas of topics queued for deletion that are not deleted yet."),
        _controller("TopicsIneligibleToDeleteCount", "Topics whose deletion is blocked for now."),
        _controller("ReplicasIneligibleToDeleteCount", "Replicas that cannot be deleted for now."),
        _controller("ActiveBrokerCount", "Registered brokers."),
        _controller("FencedBrokerCount", "Always 0: in ZooKeeper mode no broker is fenced."),
        _controller("ZkMigrationState", "Always 4: ZooKeeper mode, no migration."),
        _state_timer("ControllerChangeRateAndTimeMs", "Elections, failovers and resignations."),
        _state_timer("LeaderElectionRateAndTimeMs", "Handling brokers that start, stop and restart."),
        _state_timer("TopicChangeRateAndTimeMs", "Handling new topics and partitions."),
        _state_timer("TopicDeletionRateAndTimeMs", "Handling deletions."),
        _state_timer("PartitionReassignmentRateAndTimeMs", "Handling reassignments."),
        _state_timer("AutoLeaderBalanceRateAndTimeMs", "Moving leadership to preferred replicas."),
        _state_timer("ManualLeaderBalanceRateAndTimeMs", "Elections that a client requested."),
        _state_timer("ControlledShutdownRateAndTimeMs", "Handling controlled shutdowns."),
        _state_timer("IsrChangeRateAndTimeMs", "Handling ISR changes."),
        _state_timer("LeaderAndIsrResponseReceivedRateAndTimeMs", "Handling answers to LeaderAndIsr."),
        _state_timer("LogDirChangeRateAndTimeMs", "Handling failed log directories."),
        _state_timer("ControllerShutdownRateAndTimeMs", "Handling the shutdown of the controller."),
        _state_timer("UncleanLeaderElectionEnableRateAndTimeMs", "Retrying elections once unclean ones are allowed."),
        _state_timer("TopicUncleanLeaderElectionEnableRateAndTimeMs",
                     "Retrying elections of one topic once unclean ones are allowed for it."),
        _state_timer("ListPartitionReassignmentRateAndTimeMs", "Listing reassignments."),
        _state_timer("UpdateFeaturesRateAndTimeMs", "Handling feature updates."),
        _per_second("controller", "ControllerStats", "UncleanLeaderElections",
                    "Leaders elected from outside the ISR: records may be lost."),
        MetricRow("kafka_controller_controllereventmanager_eventqueuesize", GAUGE, "", (), f"{_EVENTS}EventQueueSize",
                  "Controller events that wait in the queue."),
        MetricRow("kafka_controller_controllereventmanager_eventqueuetimems", SUMMARY, "ms", (),
                  f"{_EVENTS}EventQueueTimeMs", "How long controller events waited in the queue."),
        MetricRow("kafka_controller_controllerchannelmanager_totalqueuesize", GAUGE, "", (),
                  f"{_MANAGER}TotalQueueSize", "Control requests not yet answered, over all brokers."),
        MetricRow("kafka_controller_controllerchannelmanager_queuesize", GAUGE, "", ("broker_id",),
                  f"{_MANAGER}QueueSize,broker-id=([0-9]+)", "Control requests that one broker has not yet answered."),
        MetricRow("kafka_controller_controllerchannelmanager_requestrateandqueuetimems", SUMMARY, "ms", ("broker_id",),
                  f"{_MANAGER}RequestRateAndQueueTimeMs,broker-id=([0-9]+)",
                  "Control requests sent, and how long the oldest change in each had waited in the queue."),
        MetricRow("kafka_server_sessionexpirelistener_zookeeperconnected", GAUGE, "", (),
                  "kafka.server:type=SessionExpireListener,name=SessionState",
                  "1 while the session with ZooKeeper is connected; Kafka's metric is text."),
        _per_second("server", "SessionExpireListener", "ZooKeeperExpires", "Sessions that expired."),
        _per_second("server", "SessionExpireListener", "ZooKeeperDisconnects", "Connections to ZooKeeper that broke."),
        _per_second("server", "SessionExpireListener", "ZooKeeperSyncConnects", "Connections to ZooKeeper made."),
        _per_second("server", "SessionExpireListener", "ZooKeeperAuthFailures",
                    "Sessions whose credentials were refused."),
        _per_second("server", "SessionExpireListener", "ZooKeeperReadOnlyConnects",
                    "Always 0: klamm does not connect to servers that have lost their quorum."),
        _per_second("server", "SessionExpireListener", "ZooKeeperSaslAuthentications", "Always 0: klamm has no SASL."),
        MetricRow("kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms", SUMMARY, "ms", (),
                  "kafka.server:type=ZooKeeperClientMetrics,name=ZooKeeperRequestLatencyMs",
                  "Time from sending a request to ZooKeeper to its answer."),
        MetricRow("kafka_server_kafkaserver_brokerstate", GAUGE, "", (),
                  "kafka.server:type=KafkaServer,name=BrokerState",
                  "State of the node: 1 starting, 2 loading its logs, 3 running, 6 moving its leaders away, 7 "
                      "closing. Metrics can be read only after state 2."),
        _replicas("LeaderCount", "Partitions that this node leads."),
        _replicas("PartitionCount", "Partitions that have a replica here."),
        _replicas("OfflineReplicaCount", "Replicas here whose log directory failed."),
        _replicas("UnderReplicatedPartitions",
                  "Partitions led here that lack replicas in their ISR, not counting those that a reassignment adds."),
        _replicas("UnderMinIsrPartitionCount",
                  "Partitions led here whose ISR has fewer than min.insync.replicas members."),
        _replicas("AtMinIsrPartitionCount", "Partitions led here whose ISR has exactly min.insync.replicas members."),
        _replicas("ReassigningPartitions", "Partitions led here that are being reassigned."),
        _replicas("ProducerIdCount", "Producer ids that the replicas here remember."),
        _replicas("PartitionsWithLateTransactionsCount",
                  "Partitions led here with a transaction open that had no batch for transaction.max.timeout.ms and 5 "
                      "minutes: `klamm audit` names those that nobody ends."),
        _per_second("server", "ReplicaManager", "IsrShrinks",
                    "Times that a replica left the ISR of a partition led here."),
        _per_second("server", "ReplicaManager", "IsrExpands",
                    "Times that a replica joined the ISR of a partition led here."),
        _per_second("server", "ReplicaManager", "FailedIsrUpdates",
                    "Changes of an ISR that the controller refused, or answered after the timeout."),
        _per_second("server", "BrokerTopicMetrics", "BytesIn", "Bytes of records that producers sent.", "bytes"),
        _per_second("server", "BrokerTopicMetrics", "MessagesIn", "Records that producers sent."),
        _per_second("server", "BrokerTopicMetrics", "BytesOut", "Bytes of records that consumers fetched.", "bytes"),
        _per_second("server", "BrokerTopicMetrics", "ReplicationBytesOut", "Bytes that followers fetched.", "bytes"),
        _throttled("Leader", "Bytes per second sent of partitions whose replication is throttled."),
        _throttled("Follower", "Bytes per second fetched of partitions whose replication is throttled."),
        _groups("NumGroups", "Groups that this node coordinates."),
        _groups("NumOffsets", "Committed offsets of the groups that this node coordinates."),
        _groups("NumGroupsPreparingRebalance", "Groups that wait for their members to join."),
        _groups("NumGroupsCompletingRebalance", "Groups that wait for their leader's assignment."),
        _groups("NumGroupsStable", "Groups whose members have their assignments."),
        _groups("NumGroupsEmpty", "Groups without members."),
        _groups("NumGroupsDead", "Groups that are being removed."),
        _group_count("offset_commits", "offset-commit-count", "Offsets committed."),
        _group_count("offset_expirations", "offset-expiration-count", "Offsets that expired."),
        _group_count("offset_deletions", "offset-deletion-count", "Offsets that an administrator deleted."),
        _group_count("group_completed_rebalances", "group-completed-rebalance-count", "Rebalances completed."),
        MetricRow("kafka_server_group_coordinator_metrics_partition_load_time_ms", SUMMARY, "ms", (),
                  "kafka.server:type=group-coordinator-metrics,attribute=partition-load-time-avg",
                  "Time to load the groups of a partition that this node now leads."),
        MetricRow("kafka_server_transaction_coordinator_metrics_partition_load_time_ms", SUMMARY, "ms", (),
                  "kafka.server:type=transaction-coordinator-metrics,attribute=partition-load-time-avg",
                  "Time to load the transactions of a partition that this node now leads."),
        _markers("UnknownDestinationQueueSize", "Transaction markers that wait for a leader of their partition."),
        _markers("LogAppendRetryQueueSize", "Complete transactions that wait to be written into the log again."),
        MetricRow("kafka_server_addpartitionstotxnmanager_verificationfailures", COUNTER, "", (),
                  "kafka.server:type=AddPartitionsToTxnManager,name=VerificationFailureRate",
                  "Partitions whose transaction was not confirmed by its coordinator."),
        MetricRow("kafka_server_addpartitionstotxnmanager_verificationtimems", SUMMARY, "ms", (),
                  "kafka.server:type=AddPartitionsToTxnManager,name=VerificationTimeMs",
                  "Time until a coordinator confirmed or refused the first batches of a transaction."),
        MetricRow("klamm_transactions", GAUGE, "", ("state",), "", "Transactional ids that this node coordinates."),
        MetricRow("kafka_network_requestmetrics_requests", COUNTER, "", ("request",),
                  "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=([A-Za-z]+)", "Requests served."),
        MetricRow("kafka_network_requestmetrics_totaltimems", SUMMARY, "ms", ("request",),
                  "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=([A-Za-z]+)",
                  "Time from the arrival of a client's request to its answer, including waits."),
        MetricRow("klamm_request_unexpected_errors", COUNTER, "", ("request",), "",
                  "Requests answered with UNKNOWN_SERVER_ERROR because of a bug; the node's log has the stack."),
        MetricRow("kafka_log_logmanager_offlinelogdirectorycount", GAUGE, "", (),
                  "kafka.log:type=LogManager,name=OfflineLogDirectoryCount", "Log directories that failed."),
        _cleaner("LogCleanerManager", "max-dirty-percent", "Largest share of dirty bytes of a compacted log."),
        _cleaner("LogCleanerManager", "time-since-last-run-ms", "Time since the cleaner looked for dirty logs.", "ms"),
        _cleaner("LogCleanerManager", "uncleanable-partitions-count", "Logs that could not be compacted.",
                 labels=("logDirectory",)),
        _cleaner("LogCleanerManager", "uncleanable-bytes", "Bytes of logs that could not be compacted.", "bytes",
                 labels=("logDirectory",)),
        _cleaner("LogCleaner", "max-buffer-utilization-percent",
                 "Share of the offset map that was full in the last cleaning."),
        _cleaner("LogCleaner", "cleaner-recopy-percent",
                 "Bytes that the last cleaning wrote, as a share of the bytes that it read."),
        _cleaner("LogCleaner", "max-clean-time-secs", "Duration of the last cleaning.", "s"),
        _cleaner("LogCleaner", "max-compaction-delay-secs",
                 "How long a record has waited beyond max.compaction.lag.ms.", "s"),
        _cleaner("LogCleaner", "DeadThreadCount", "Cleaner tasks that ended by an unexpected error."),
        MetricRow("klamm_log_damaged_ranges_found", COUNTER, "", (), "",
                  "Ranges of damaged records that were found in closed segments; the node's log names each."),
        MetricRow("klamm_log_damaged_ranges_repaired", COUNTER, "", (), "",
                  "Damaged ranges of records that were replaced by the records of another replica."),
        MetricRow("klamm_log_damaged_ranges", GAUGE, "", (), "",
                  "Damaged ranges of records that are not repaired yet: fetches of them get CORRUPT_MESSAGE."),
        MetricRow("klamm_log_scrubbed_bytes", COUNTER, "bytes", (), "",
                  "Bytes of closed segments that were read to look for damage."),
        MetricRow("klamm_log_time_since_last_scrub_ms", GAUGE, "ms", (), "",
                  "Time since the last search for damage in all closed segments ended; 0 before the first one."),
        MetricRow("klamm_config_changes", COUNTER, "", (), "", "Config change notifications that this node handled."),
        MetricRow("klamm_controller_standby_current", GAUGE, "", (), "",
                  "1 while this node, not being controller, has all topics and partitions in memory for its election."),
        MetricRow("klamm_controller_standby_partitions", GAUGE, "", (), "",
                  "Partitions in memory for the election of this node."),
        MetricRow("klamm_controller_standby_changed_znodes", GAUGE, "", (), "",
                  "Znodes that changed, and that this node has still to read again."),
        MetricRow("klamm_controller_standby_lag_ms", GAUGE, "ms", (), "",
                  "Time since the oldest change that this node was notified of and has not read again yet; else 0."),
        MetricRow("klamm_controller_standby_reads", COUNTER, "", (), "",
                  "Znodes of topics and partition states that this node has read as a standby of the controller."),
        MetricRow("klamm_controller_standby_losses", COUNTER, "", (), "",
                  "How often the topics and partitions in memory could be outdated, so that all were read again."),
        MetricRow("klamm_crash_guard_running", GAUGE, "", (), "",
                  "1 while a crash guard runs beside the node; 0 where it is turned off or cannot run."),
        MetricRow("klamm_crash_guard_starts", COUNTER, "", (), "",
                  "Crash guard processes started; more than 1 after a crash guard ended and was replaced."),
        MetricRow("klamm_journal_lost_lines", COUNTER, "", (), "", "Journal lines lost because the disk was full."),
        MetricRow("klamm_journal_topic_lost_files", COUNTER, "", (), "",
                  "Journal files rotated away before their lines were in the journal topic."),
        MetricRow("klamm_journal_topic_waiting", GAUGE, "", (), "",
                  "1 while the journal topic is unavailable and lines are kept in the files."),
    )
}  # fmt: skip


INTRODUCTION: Final = """\
# Metrics

Drawn from `telemetry/metric_table.py` by `make docs`.

With `klamm.metrics.port=9404` in its configuration a node answers `GET /metrics` on that port, in the text format of
Prometheus or OpenMetrics, as the client asks. Without the key, or with 0, no port opens. `klamm.metrics.host` says on
which address, 127.0.0.1 where it is not set. There is no login: keep the port inside.

Names are those under which the example configuration for Kafka of the JMX exporter shows Kafka's beans, so dashboards
made for Kafka work. Counters end in `_total` in the output; summaries have `_count`, `_sum` and quantiles over the
last 1,024 values. What only the active controller knows is 0 elsewhere.

| name | kind | unit | labels | in Kafka | |
|---|---|---|---|---|---|
"""


def as_markdown() -> str:
    """Return the content of `docs/metrics.md`, made from the table."""
    lines = []
    for row in TABLE.values():
        cells = (f"`{row.name}`", row.kind, row.unit, ", ".join(row.labels), f"`{row.source}`" if row.source else "")
        lines.append(f"| {' | '.join(cells)} | {row.sentence} |\n")
    return INTRODUCTION + "".join(lines)
