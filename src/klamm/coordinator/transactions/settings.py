"""The configs that the transaction coordinator reads, by Kafka's names with underscores."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_state_log_load_buffer_size: int = 5_242_880
    request_timeout_ms: int = 30_000
