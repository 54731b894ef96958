"""Records of `__consumer_offsets` and `__transaction_state`, and the metadata that group members send.

Notation: `klamm.wire.notation`; facts: Kafka 3.9.
"""

TABLE = """
record OffsetCommitKey 0-1
  group str, topic str, partition i32

record OffsetCommitValue 0-4 flexible 4+
  offset i64, leader_epoch i32 3+ =-1 ~, metadata str, commit_timestamp i64, expire_timestamp i64 1 =-1 ~

record GroupMetadataKey 2
  group str

record GroupMetadataValue 0-4 flexible 4+
  protocol_type str, generation i32, protocol str?, leader str?, current_state_timestamp i64 2+ =-1 ~
  members [MemberMetadata]
    member_id str, group_instance_id str?3+ 3+ =null ~, client_id str, client_host str
    rebalance_timeout i32 1+ =-1 ~, session_timeout i32, subscription bytes, assignment bytes

record ConsumerProtocolSubscription 0-3
  topics [str], user_data bytes? =null
  owned_partitions [OwnedPartitions] 1+ ~
    topic str, partitions [i32]
  generation_id i32 2+ =-1 ~, rack_id str?3+ 3+ =null ~

record ConsumerProtocolAssignment 0-3
  assigned_partitions [AssignedPartitions]
    topic str, partitions [i32]
  user_data bytes? =null

record TransactionLogKey 0
  transactional_id str

record TransactionLogValue 0-1 flexible 1+
  producer_id i64, producer_epoch i16, transaction_timeout_ms i32, transaction_status i8
  transaction_partitions [PartitionsSchema]?
    topic str, partition_ids [i32]
  transaction_last_update_timestamp_ms i64, transaction_start_timestamp_ms i64
"""
