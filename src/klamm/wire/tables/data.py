"""Produce, Fetch and the look-ups around them. Notation: `klamm.wire.notation`; facts: Kafka 3.9."""

TABLE = """
api Produce 0 0-11 flexible 9+
  request
    transactional_id str? 3+ =null, acks i16, timeout_ms i32
    topic_data [TopicProduceData]
      name str
      partition_data [PartitionProduceData]
        index i32, records records?
  response
    responses [TopicProduceResponse]
      name str
      partition_responses [PartitionProduceResponse]
        index i32, error_code i16, base_offset i64, log_append_time_ms i64 2+ =-1 ~
        log_start_offset i64 5+ =-1 ~
        record_errors [BatchIndexAndErrorMessage] 8+ ~
          batch_index i32, batch_index_error_message str? =null
        error_message str? 8+ =null ~
        current_leader ProduceResponseLeaderIdAndEpoch 10+ tag0
          leader_id i32 =-1, leader_epoch i32 =-1
    throttle_time_ms i32 1+ ~
    node_endpoints [ProduceResponseNodeEndpoint] 10+ tag0
      node_id i32, host str, port i32, rack str? =null

api Fetch 1 0-17 flexible 12+
  request
    cluster_id str? 12+ =null tag0 ~, replica_id i32 0-14 =-1
    replica_state ReplicaState 15+ tag1
      replica_id i32 =-1, replica_epoch i64 =-1
    max_wait_ms i32, min_bytes i32, max_bytes i32 3+ =2147483647 ~, isolation_level i8 4+ ~, session_id i32 7+ ~
    session_epoch i32 7+ =-1 ~
    topics [FetchTopic]
      topic str 0-12 ~, topic_id uuid 13+ ~
      partitions [FetchPartition]
        partition i32, current_leader_epoch i32 9+ =-1 ~, fetch_offset i64, last_fetched_epoch i32 12+ =-1
        log_start_offset i64 5+ =-1 ~, partition_max_bytes i32, replica_directory_id uuid 17+ tag0 ~
    forgotten_topics_data [ForgottenTopic] 7+
      topic str 7-12 ~, topic_id uuid 13+ ~, partitions [i32]
    rack_id str 11+ ~
  response
    throttle_time_ms i32 1+ ~, error_code i16 7+ ~, session_id i32 7+
    responses [FetchableTopicResponse]
      topic str 0-12 ~, topic_id uuid 13+ ~
      partitions [FetchResponsePartitionData]
        partition_index i32, error_code i16, high_watermark i64, last_stable_offset i64 4+ =-1 ~
        log_start_offset i64 5+ =-1 ~
        diverging_epoch FetchResponseEpochEndOffset 12+ tag0
          epoch i32 =-1, end_offset i64 =-1
        current_leader FetchResponseLeaderIdAndEpoch 12+ tag1
          leader_id i32 =-1, leader_epoch i32 =-1
        snapshot_id SnapshotId 12+ tag2
          end_offset i64 =-1, epoch i32 =-1
        aborted_transactions [AbortedTransaction]? 4+ ~
          producer_id i64, first_offset i64
        preferred_read_replica i32 11+ =-1, records records?
    node_endpoints [FetchResponseNodeEndpoint] 16+ tag0
      node_id i32, host str, port i32, rack str? =null

api ListOffsets 2 0-9 flexible 6+
  request
    replica_id i32, isolation_level i8 2+
    topics [ListOffsetsTopic]
      name str
      partitions [ListOffsetsPartition]
        partition_index i32, current_leader_epoch i32 4+ =-1 ~, timestamp i64, max_num_offsets i32 0 =1
  response
    throttle_time_ms i32 2+ ~
    topics [ListOffsetsTopicResponse]
      name str
      partitions [ListOffsetsPartitionResponse]
        partition_index i32, error_code i16, old_style_offsets [i64] 0, timestamp i64 1+ =-1, offset i64 1+ =-1
        leader_epoch i32 4+ =-1

api DeleteRecords 21 0-2 flexible 2+
  request
    topics [DeleteRecordsTopic]
      name str
      partitions [DeleteRecordsPartition]
        partition_index i32, offset i64
    timeout_ms i32
  response
    throttle_time_ms i32
    topics [DeleteRecordsTopicResult]
      name str
      partitions [DeleteRecordsPartitionResult]
        partition_index i32, low_watermark i64, error_code i16

api OffsetForLeaderEpoch 23 0-4 flexible 4+
  request
    replica_id i32 3+ =-2 ~
    topics [OffsetForLeaderTopic]
      topic str
      partitions [OffsetForLeaderPartition]
        partition i32, current_leader_epoch i32 2+ =-1 ~, leader_epoch i32
  response
    throttle_time_ms i32 2+ ~
    topics [OffsetForLeaderTopicResult]
      topic str
      partitions [OffsetForLeaderEpochResponseEpochEndOffset]
        error_code i16, partition i32, leader_epoch i32 1+ =-1 ~, end_offset i64 =-1

api DescribeProducers 61 0 flexible 0+
  request
    topics [TopicRequest]
      name str, partition_indexes [i32]
  response
    throttle_time_ms i32
    topics [TopicResponse]
      name str
      partitions [PartitionResponse]
        partition_index i32, error_code i16, error_message str? =null
        active_producers [ProducerState]
          producer_id i64, producer_epoch i32, last_sequence i32 =-1, last_timestamp i64 =-1
          coordinator_epoch i32, current_txn_start_offset i64 =-1
"""
