"""All metrics of a node, read when they are requested."""

from collections.abc import Iterator
from typing import Final

from klamm.broker.dispatch import Dispatcher
from klamm.broker.parts import Parts
from klamm.telemetry.meters import Reading
from klamm.wire.api import ApiKey, api
from klamm.zk.states import SessionState

_LATE_TRANSACTION_MS: Final = 5 * 60_000
"""For so long after the longest timeout a coordinator may still be about to abort a transaction."""


class NodeMetrics:
    """Reads the metrics of all parts of a node."""

    def __init__(self, parts: Parts, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._status = parts.context.status
        self._sessions = parts.context.sessions
        self._controller = parts.controller
        self._replicas = parts.replicas
        self._fetch = parts.fetch
        self._changes = parts.config_changes
        self._logs = parts.logs
        self._cleaner = parts.cleaner
        self._scrubber = parts.scrubber
        self._repair = parts.repair
        self._clock = parts.context.world.clock
        self._journal = parts.journal
        self._journal_topic = parts.journal_topic
        self._groups = parts.groups
        self._transactions = parts.transactions
        self._max_timeout_ms = parts.context.config.transaction_max_timeout_ms
        self._verification = parts.verification

    async def render_page(self, accept: str) -> tuple[bytes, str]:
        """The metrics page as text, and its content type."""
        from klamm.telemetry.exposition import render  # loaded when the port opens: most nodes have none

        hosted = await self._replica_readings()
        deletion = await self._controller.count_deletion()
        coordinators = [*self._group_readings(), *self._transaction_readings()]
        readings = [*self._controller.readings(deletion), *self._node_readings(), *coordinators, *hosted]
        return render(readings, accept)

    async def _replica_readings(self) -> list[Reading]:
        """Return the metrics of replication."""
        late_ms = self._max_timeout_ms + _LATE_TRANSACTION_MS
        health = await self._replicas.partition_health(self._clock.now_ms() - late_ms)
        values = {
            "partitioncount": health.hosted,
            "leadercount": health.led,
            "underreplicatedpartitions": health.under_replicated,
            "underminisrpartitioncount": health.under_min_isr,
            "atminisrpartitioncount": health.at_min_isr,
            "offlinereplicacount": len(self._replicas.offline_partitions),
            "isrshrinks": self._replicas.counts.isr_shrinks,
            "isrexpands": self._replicas.counts.isr_expands,
            "reassigningpartitions": health.reassigning,
            "produceridcount": health.producer_ids,
            "partitionswithlatetransactionscount": health.with_late_transactions,
            "failedisrupdates": self._replicas.counts.failed_isr_updates,
        }
        return [Reading(f"kafka_server_replicamanager_{name}", value) for name, value in values.items()]

    def _group_readings(self) -> Iterator[Reading]:
        """Yield the metrics of the group coordinator."""
        manager, counts = "kafka_coordinator_group_groupmetadatamanager_num", self._groups.counts
        by_state = self._groups.count_groups()
        yield Reading(f"{manager}groups", sum(by_state.values()))
        yield Reading(f"{manager}offsets", self._groups.count_offsets())
        for state, count in by_state.items():
            yield Reading(f"{manager}groups{state.lower()}", count)
        metrics = "kafka_server_group_coordinator_metrics_"
        yield Reading(f"{metrics}offset_commits", counts.offset_commits)
        yield Reading(f"{metrics}offset_expirations", counts.offset_expirations)
        yield Reading(f"{metrics}offset_deletions", counts.offset_deletions)
        yield Reading(f"{metrics}group_completed_rebalances", counts.completed_rebalances)
        yield Reading(f"{metrics}partition_load_time_ms", counts.partition_loads)

    def _transaction_readings(self) -> Iterator[Reading]:
        """Yield the metrics of the transaction coordinator, and of verification by this node's leaders."""
        counts = self._transactions.counts
        metrics = "kafka_server_transaction_coordinator_metrics_"
        yield Reading(f"{metrics}partition_load_time_ms", counts.partition_loads)
        manager = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
        yield Reading(f"{manager}unknowndestinationqueuesize", counts.unavailable_leaders)
        yield Reading(f"{manager}logappendretryqueuesize", counts.completion_retries)
        verification = "kafka_server_addpartitionstotxnmanager_verification"
        yield Reading(f"{verification}failures", self._verification.failures)
        yield Reading(f"{verification}timems", self._verification.times)
        for state, count in self._transactions.count_transactions().items():
            yield Reading("klamm_transactions", count, (state,))

    def _node_readings(self) -> Iterator[Reading]:
        """Yield the metrics of the node's other parts, such as requests, ZooKeeper sessions and the journal."""
        yield Reading("kafka_server_kafkaserver_brokerstate", int(self._status.state))
        topics = "kafka_server_brokertopicmetrics_"
        yield Reading(f"{topics}bytesin", self._replicas.counts.bytes_in)
        yield Reading(f"{topics}messagesin", self._replicas.counts.messages_in)
        yield Reading(f"{topics}bytesout", self._fetch.bytes_out)
        yield Reading(f"{topics}replicationbytesout", self._fetch.replication_bytes_out)
        quotas = self._replicas.quotas
        yield Reading("kafka_server_leaderreplication_byterate", quotas.leader.byte_rate())
        yield Reading("kafka_server_followerreplication_byterate", quotas.follower.byte_rate())
        session = "kafka_server_sessionexpirelistener_zookeeper"
        counts = self._sessions.counts
        yield Reading(f"{session}connected", int(self._sessions.is_connected))
        yield Reading(f"{session}expires", counts[SessionState.EXPIRED])
        yield Reading(f"{session}disconnects", counts[SessionState.DISCONNECTED])
        yield Reading(f"{session}syncconnects", counts[SessionState.CONNECTED])
        yield Reading(f"{session}authfailures", counts[SessionState.AUTH_FAILED])
        yield Reading(f"{session}readonlyconnects", 0)
        yield Reading(f"{session}saslauthentications", 0)
        yield Reading("kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms", self._sessions.latency)
        yield Reading("kafka_log_logmanager_offlinelogdirectorycount", len(self._logs.offline_directories))
        yield from self._cleaner_readings()
        yield from self._damage_readings()
        yield Reading("klamm_config_changes", self._changes.followed)
        guard = self._sessions.guard
        yield Reading("klamm_crash_guard_running", int(guard.is_running))
        yield Reading("klamm_crash_guard_starts", guard.starts)
        topic = self._journal_topic
        yield Reading("klamm_journal_lost_lines", self._journal.lost_lines)
        yield Reading("klamm_journal_topic_lost_files", topic.lost_files if topic else 0)
        yield Reading("klamm_journal_topic_waiting", int(topic.is_waiting) if topic else 0)
        for key, count in self._dispatcher.unexpected_errors.items():
            yield Reading("klamm_request_unexpected_errors", count, (api(ApiKey(key)).name,))
        for key, timer in self._dispatcher.times.items():
            if timer.count:
                labels = (api(ApiKey(key)).name,)
                yield Reading("kafka_network_requestmetrics_requests", timer.count, labels)
                yield Reading("kafka_network_requestmetrics_totaltimems", timer, labels)

    def _damage_readings(self) -> Iterator[Reading]:
        """Yield the metrics of damaged records: found, repaired, and still waiting for another replica."""
        scrubber, now_ms = self._scrubber, self._clock.now_ms()
        last_pass_ms = now_ms if scrubber.last_pass_ms is None else scrubber.last_pass_ms
        yield Reading("klamm_log_damaged_ranges_found", scrubber.damaged_ranges)
        yield Reading("klamm_log_damaged_ranges_repaired", self._repair.repaired_ranges)
        yield Reading("klamm_log_damaged_ranges", scrubber.unrepaired_ranges())
        yield Reading("klamm_log_scrubbed_bytes", scrubber.read_bytes)
        yield Reading("klamm_log_time_since_last_scrub_ms", now_ms - last_pass_ms)

    def _cleaner_readings(self) -> Iterator[Reading]:
        """Yield the metrics of the log cleaner."""
        statistics, manager = self._cleaner.statistics, "kafka_log_logcleanermanager_"
        now_ms = self._clock.now_ms()
        last_run_ms = now_ms if statistics.last_run_ms is None else statistics.last_run_ms
        yield Reading(f"{manager}max_dirty_percent", int(100 * statistics.dirtiest_ratio))
        yield Reading(f"{manager}time_since_last_run_ms", now_ms - last_run_ms)
        uncleanable = self._cleaner.uncleanable()
        for directory in self._logs.directories:
            here = [log for log in uncleanable if self._logs.directory_of(log.partition) == directory]
            yield Reading(f"{manager}uncleanable_partitions_count", len(here), (directory,))
            yield Reading(f"{manager}uncleanable_bytes", sum(log.size for log in here), (directory,))
        cleaner = "kafka_log_logcleaner_"
        yield Reading(f"{cleaner}max_buffer_utilization_percent", int(100 * statistics.map_utilization))
        yield Reading(f"{cleaner}cleaner_recopy_percent", int(100 * statistics.recopied_ratio))
        yield Reading(f"{cleaner}max_clean_time_secs", int(statistics.cleaning_s))
        yield Reading(f"{cleaner}max_compaction_delay_secs", int(statistics.compaction_delay_s))
        yield Reading(f"{cleaner}deadthreadcount", self._cleaner.failed_tasks)
