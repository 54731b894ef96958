"""The settings of each part of a node, from its configuration."""

from klamm.config.node_config import NodeConfig
from klamm.controller.settings import ControllerSettings, parse_ibp
from klamm.log.cleaner.settings import CleanerSettings
from klamm.log.manager_settings import LogManagerSettings
from klamm.model.ids import BrokerId
from klamm.net.connection_table import ConnectionLimits
from klamm.net.server import ServerLimits
from klamm.replication.replica_manager import ReplicationSettings
from klamm.runtime.network import SocketBuffers


def server_limits(config: NodeConfig) -> ServerLimits:
    return ServerLimits(
        config.socket_request_max_bytes,
        config.connections_max_idle_ms,
        config.queued_max_request_bytes,
        config.klamm_queued_max_response_bytes,
        SocketBuffers(config.socket_send_buffer_bytes, config.socket_receive_buffer_bytes),
        ConnectionLimits(config.max_connections, config.max_connections_per_ip, config.connections_per_address),
    )


def controller_settings(config: NodeConfig, broker_id: BrokerId) -> ControllerSettings:
    return ControllerSettings(
        broker_id,
        config.inter_broker_listener,
        config.control_plane_listener,
        parse_ibp(config.inter_broker_protocol_version),
        config.unclean_leader_election_enable,
        config.controller_socket_timeout_ms,
        config.request_timeout_ms,
        feature_timeout_s=config.zookeeper_connection_timeout_ms / 1000,
        token_check_interval_ms=config.delegation_token_expiry_check_interval_ms
        if _has_delegation_tokens(config)
        else None,
        auto_leader_rebalance=config.auto_leader_rebalance_enable,
        leader_imbalance_check_s=config.leader_imbalance_check_interval_seconds,
        leader_imbalance_percentage=config.leader_imbalance_per_broker_percentage,
        delete_topic_enable=config.delete_topic_enable,
        dead_broker_timeout_ms=config.klamm_delete_topic_dead_broker_wait_ms,
    )


def _has_delegation_tokens(config: NodeConfig) -> bool:
    return any(config.given.get(f"delegation.token.{name}.key") for name in ("secret", "master"))


def replication_settings(config: NodeConfig) -> ReplicationSettings:
    return ReplicationSettings(
        replica_lag_time_max_ms=config.replica_lag_time_max_ms,
        replica_fetch_wait_max_ms=config.replica_fetch_wait_max_ms,
        replica_fetch_min_bytes=config.replica_fetch_min_bytes,
        replica_fetch_max_bytes=config.replica_fetch_max_bytes,
        replica_fetch_response_max_bytes=config.replica_fetch_response_max_bytes,
        replica_fetch_backoff_ms=config.replica_fetch_backoff_ms,
        replica_socket_timeout_ms=config.replica_socket_timeout_ms,
        num_replica_fetchers=config.num_replica_fetchers,
        replica_high_watermark_checkpoint_interval_ms=config.replica_high_watermark_checkpoint_interval_ms,
        max_incremental_fetch_session_cache_slots=config.max_incremental_fetch_session_cache_slots,
    )


def cleaner_settings(config: NodeConfig) -> CleanerSettings:
    return CleanerSettings(
        enable=config.log_cleaner_enable,
        threads=config.log_cleaner_threads,
        dedupe_buffer_size=config.log_cleaner_dedupe_buffer_size,
        io_buffer_load_factor=config.log_cleaner_io_buffer_load_factor,
        io_buffer_size=config.log_cleaner_io_buffer_size,
        io_max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
        backoff_ms=config.log_cleaner_backoff_ms,
    )


def log_settings(config: NodeConfig) -> LogManagerSettings:
    return LogManagerSettings(
        recovery_threads_per_directory=config.num_recovery_threads_per_data_dir,
        retention_check_interval_ms=config.log_retention_check_interval_ms,
        initial_task_delay_ms=config.log_initial_task_delay_ms,
        flush_scheduler_interval_ms=config.log_flush_scheduler_interval_ms,
        recovery_checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
        log_start_checkpoint_interval_ms=config.log_flush_start_offset_checkpoint_interval_ms,
        producer_expiration_ms=config.producer_id_expiration_ms,
        producer_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
    )
