"""Producer ids and transactions. Notation: `klamm.wire.notation`; facts: Kafka 3.9."""

TABLE = """
api InitProducerId 22 0-5 flexible 2+
  request
    transactional_id str?, transaction_timeout_ms i32, producer_id i64 3+ =-1, producer_epoch i16 3+ =-1
  response
    throttle_time_ms i32 ~, error_code i16, producer_id i64 =-1, producer_epoch i16

api AddPartitionsToTxn 24 0-5 flexible 3+
  request
    transactions [AddPartitionsToTxnTransaction] 4+
      transactional_id str, producer_id i64, producer_epoch i16, verify_only bool
      topics [AddPartitionsToTxnTopic]
        name str, partitions [i32]
    v3_and_below_transactional_id str 0-3, v3_and_below_producer_id i64 0-3, v3_and_below_producer_epoch i16 0-3
    v3_and_below_topics [AddPartitionsToTxnTopic] 0-3
  response
    throttle_time_ms i32, error_code i16 4+ ~
    results_by_transaction [AddPartitionsToTxnResult] 4+
      transactional_id str
      topic_results [AddPartitionsToTxnTopicResult]
        name str
        results_by_partition [AddPartitionsToTxnPartitionResult]
          partition_index i32, partition_error_code i16
    results_by_topic_v3_and_below [AddPartitionsToTxnTopicResult] 0-3

api AddOffsetsToTxn 25 0-4 flexible 3+
  request
    transactional_id str, producer_id i64, producer_epoch i16, group_id str
  response
    throttle_time_ms i32, error_code i16

api EndTxn 26 0-4 flexible 3+
  request
    transactional_id str, producer_id i64, producer_epoch i16, committed bool
  response
    throttle_time_ms i32, error_code i16

api WriteTxnMarkers 27 0-1 flexible 1+
  request
    markers [WritableTxnMarker]
      producer_id i64, producer_epoch i16, transaction_result bool
      topics [WritableTxnMarkerTopic]
        name str, partition_indexes [i32]
      coordinator_epoch i32
  response
    markers [WritableTxnMarkerResult]
      producer_id i64
      topics [WritableTxnMarkerTopicResult]
        name str
        partitions [WritableTxnMarkerPartitionResult]
          partition_index i32, error_code i16

api TxnOffsetCommit 28 0-4 flexible 3+
  request
    transactional_id str, group_id str, producer_id i64, producer_epoch i16, generation_id i32 3+ =-1
    member_id str 3+, group_instance_id str? 3+ =null
    topics [TxnOffsetCommitRequestTopic]
      name str
      partitions [TxnOffsetCommitRequestPartition]
        partition_index i32, committed_offset i64, committed_leader_epoch i32 2+ =-1 ~, committed_metadata str?
  response
    throttle_time_ms i32
    topics [TxnOffsetCommitResponseTopic]
      name str
      partitions [TxnOffsetCommitResponsePartition]
        partition_index i32, error_code i16

api DescribeTransactions 65 0 flexible 0+
  request
    transactional_ids [str]
  response
    throttle_time_ms i32
    transaction_states [DescribeTransactionsResponseTransactionState]
      error_code i16, transactional_id str, transaction_state str, transaction_timeout_ms i32
      transaction_start_time_ms i64, producer_id i64, producer_epoch i16
      topics [DescribeTransactionsResponseTopicData]
        topic str, partitions [i32]

api ListTransactions 66 0-1 flexible 0+
  request
    state_filters [str], producer_id_filters [i64], duration_filter i64 1+ =-1
  response
    throttle_time_ms i32, error_code i16, unknown_state_filters [str]
    transaction_states [ListTransactionsResponseTransactionState]
      transactional_id str, producer_id i64, transaction_state str
"""
