"""Log directories. Notation: `klamm.wire.notation`; facts: Kafka 3.9."""

TABLE = """
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
