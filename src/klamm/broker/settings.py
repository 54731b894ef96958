"""The settings of each part of a node, from its configuration."""

from typing import Final

from klamm.config.node_config import NodeConfig
from klamm.controller.settings import ControllerSettings, Ibp, parse_ibp
from klamm.coordinator.settings import GroupSettings, TransactionSettings
from klamm.log.settings import CleanerSettings, LogManagerSettings, ScrubberSettings
from klamm.model.ids import BrokerId
from klamm.net.connection_table import ConnectionLimits
from klamm.net.server import ServerLimits
from klamm.replication.replica_manager import ReplicationSettings
from klamm.runtime.network import SocketBuffers
from klamm.wire.compression import Codec

_FIRST_WITHOUT_EXPIRE_TIMESTAMP: Final[Ibp] = (2, 1, 0)
_FIRST_WITH_LEADER_EPOCH: Final[Ibp] = (2, 1, 1)
FIRST_WITH_STATIC_MEMBERS: Final[Ibp] = (2, 3, 0)


def server_limits(config: NodeConfig) -> ServerLimits:
    """Return the limits of the network server from the node's configs."""
    return ServerLimits(
        config.socket_request_max_bytes,
        config.connections_max_idle_ms,
        config.queued_max_request_bytes,
        config.klamm_queued_max_response_bytes,
        SocketBuffers(config.socket_send_buffer_bytes, config.socket_receive_buffer_bytes),
        ConnectionLimits(config.max_connections, config.max_connections_per_ip, config.connections_per_address),
    )


def controller_settings(config: NodeConfig, broker_id: BrokerId) -> ControllerSettings:
    """Return the settings of the controller from the node's configs."""
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
        replaces_restarted_replicas=config.klamm_replace_restarted_replicas,
    )


def _has_delegation_tokens(config: NodeConfig) -> bool:
    """Whether delegation tokens are enabled: a secret key is configured."""
    return any(config.given.get(f"delegation.token.{name}.key") for name in ("secret", "master"))


def replication_settings(config: NodeConfig) -> ReplicationSettings:
    """Return the settings of replication from the node's configs."""
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
    """Return the settings of the log cleaner from the node's configs."""
    return CleanerSettings(
        enable=config.log_cleaner_enable,
        threads=config.log_cleaner_threads,
        dedupe_buffer_size=config.log_cleaner_dedupe_buffer_size,
        io_buffer_load_factor=config.log_cleaner_io_buffer_load_factor,
        io_buffer_size=config.log_cleaner_io_buffer_size,
        io_max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
        backoff_ms=config.log_cleaner_backoff_ms,
    )


def scrubber_settings(config: NodeConfig) -> ScrubberSettings:
    """Return the settings of the search for damaged records from the node's configs."""
    return ScrubberSettings(config.klamm_log_scrub_bytes_per_second, config.klamm_log_scrub_interval_ms)


def log_settings(config: NodeConfig) -> LogManagerSettings:
    """Return the settings of the log manager from the node's configs."""
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


def group_settings(config: NodeConfig) -> GroupSettings:
    """Return the settings of the group coordinator from the node's configs.

    The versions of its records follow inter.broker.protocol.version, so that an older coordinator can read them.
    """
    ibp = parse_ibp(config.inter_broker_protocol_version)
    return GroupSettings(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_commit_timeout_ms=config.offsets_commit_timeout_ms,
        offsets_commit_required_acks=config.offsets_commit_required_acks,
        offsets_load_buffer_size=config.offsets_load_buffer_size,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offsets_topic_codec=Codec(config.offsets_topic_compression_codec),
        offset_value_version=1 + sum(ibp >= i for i in (_FIRST_WITHOUT_EXPIRE_TIMESTAMP, _FIRST_WITH_LEADER_EPOCH)),
        group_value_version=1 + sum(ibp >= i for i in (_FIRST_WITHOUT_EXPIRE_TIMESTAMP, FIRST_WITH_STATIC_MEMBERS)),
    )


def transaction_settings(config: NodeConfig) -> TransactionSettings:
    """Return the settings of the transaction coordinator from the node's configs."""
    names = TransactionSettings.__dataclass_fields__
    return TransactionSettings(**{name: getattr(config, name) for name in names})


def allows_static_members(config: NodeConfig) -> bool:
    """Whether all brokers of this inter.broker.protocol.version store the instance ids of static group members."""
    return parse_ibp(config.inter_broker_protocol_version) >= FIRST_WITH_STATIC_MEMBERS
