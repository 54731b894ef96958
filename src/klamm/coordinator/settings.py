"""The configs that the coordinators read, by Kafka's names with underscores."""

from dataclasses import dataclass
from typing import Final

from klamm.wire.compression import Codec

NEWEST_OFFSET_VALUE: Final = 3
NEWEST_GROUP_VALUE: Final = 3


@dataclass(frozen=True, slots=True)
class GroupSettings:
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_commit_timeout_ms: int = 5_000
    offsets_commit_required_acks: int = -1
    offsets_load_buffer_size: int = 5_242_880
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_codec: Codec = Codec.NONE
    offset_value_version: int = NEWEST_OFFSET_VALUE
    """Older ones where brokers of an older inter.broker.protocol.version read the records, too."""
    group_value_version: int = NEWEST_GROUP_VALUE


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_state_log_load_buffer_size: int = 5_242_880
    request_timeout_ms: int = 30_000
