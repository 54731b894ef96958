"""What the transaction coordinator keeps in `__transaction_state`.

Notation: `klamm.wire.notation`; facts: Kafka 3.9.
"""

TABLE = """
record TransactionLogKey 0
  transactional_id str

record TransactionLogValue 0-1 flexible 1+
  producer_id i64, producer_epoch i16, transaction_timeout_ms i32, transaction_status i8
  transaction_partitions [PartitionsSchema]?
    topic str, partition_ids [i32]
  transaction_last_update_timestamp_ms i64, transaction_start_timestamp_ms i64
"""
