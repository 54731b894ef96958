"""Topics: creation, growth, deletion, elections, reassignments, log directories of replicas.

Notation: `klamm.wire.notation`; facts: Kafka 3.9.
"""

TABLE = """
api CreateTopics 19 0-7 flexible 5+
  request
    topics [CreatableTopic]
      name str, num_partitions i32, replication_factor i16
      assignments [CreatableReplicaAssignment]
        partition_index i32, broker_ids [i32]
      configs [CreatableTopicConfig]
        name str, value str?
    timeout_ms i32 =60000, validate_only bool 1+
  response
    throttle_time_ms i32 2+ ~
    topics [CreatableTopicResult]
      name str, topic_id uuid 7+ ~, error_code i16, error_message str? 1+ ~
      topic_config_error_code i16 5+ tag0 ~, num_partitions i32 5+ =-1 ~, replication_factor i16 5+ =-1 ~
      configs [CreatableTopicConfigs]? 5+ ~
        name str, value str?, read_only bool, config_source i8 =-1 ~, is_sensitive bool

api DeleteTopics 20 0-6 flexible 4+
  request
    topics [DeleteTopicState] 6+
      name str? =null, topic_id uuid
    topic_names [str] 0-5 ~, timeout_ms i32
  response
    throttle_time_ms i32 1+ ~
    responses [DeletableTopicResult]
      name str?6+, topic_id uuid 6+ ~, error_code i16, error_message str? 5+ =null ~

api CreatePartitions 37 0-3 flexible 2+
  request
    topics [CreatePartitionsTopic]
      name str, count i32
      assignments [CreatePartitionsAssignment]?
        broker_ids [i32]
    timeout_ms i32, validate_only bool
  response
    throttle_time_ms i32
    results [CreatePartitionsTopicResult]
      name str, error_code i16, error_message str? =null

api ElectLeaders 43 0-2 flexible 2+
  request
    election_type i8 1+
    topic_partitions [ElectLeadersRequestTopicPartitions]?
      topic str, partitions [i32]
    timeout_ms i32 =60000
  response
    throttle_time_ms i32, error_code i16 1+
    replica_election_results [ReplicaElectionResult]
      topic str
      partition_result [PartitionResult]
        partition_id i32, error_code i16, error_message str?

api AlterPartitionReassignments 45 0 flexible 0+
  request
    timeout_ms i32 =60000
    topics [ReassignableTopic]
      name str
      partitions [ReassignablePartition]
        partition_index i32, replicas [i32]? =null
  response
    throttle_time_ms i32, error_code i16, error_message str?
    responses [ReassignableTopicResponse]
      name str
      partitions [ReassignablePartitionResponse]
        partition_index i32, error_code i16, error_message str?

api ListPartitionReassignments 46 0 flexible 0+
  request
    timeout_ms i32 =60000
    topics [ListPartitionReassignmentsTopics]? =null
      name str, partition_indexes [i32]
  response
    throttle_time_ms i32, error_code i16, error_message str?
    topics [OngoingTopicReassignment]
      name str
      partitions [OngoingPartitionReassignment]
        partition_index i32, replicas [i32], adding_replicas [i32], removing_replicas [i32]

api AlterReplicaLogDirs 34 0-2 flexible 2+
  request
    dirs [AlterReplicaLogDir]
      path str
      topics [AlterReplicaLogDirTopic]
        name str, partitions [i32]
  response
    throttle_time_ms i32
    results [AlterReplicaLogDirTopicResult]
      topic_name str
      partitions [AlterReplicaLogDirPartitionResult]
        partition_index i32, error_code i16

api DescribeLogDirs 35 0-4 flexible 2+
  request
    topics [DescribableLogDirTopic]?
      topic str, partitions [i32]
  response
    throttle_time_ms i32, error_code i16 3+ ~
    results [DescribeLogDirsResult]
      error_code i16, log_dir str
      topics [DescribeLogDirsTopic]
        name str
        partitions [DescribeLogDirsPartition]
          partition_index i32, partition_size i64, offset_lag i64, is_future_key bool
      total_bytes i64 4+ =-1 ~, usable_bytes i64 4+ =-1 ~
"""
