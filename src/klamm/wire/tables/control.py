"""Messages between controller and brokers. Notation: `klamm.wire.notation`; facts: Kafka 3.9."""

TABLE = """
api LeaderAndIsr 4 0-7 flexible 4+
  request
    controller_id i32, is_kraft_controller bool 7+, controller_epoch i32, broker_epoch i64 2+ =-1 ~, type i8 5+
    ungrouped_partition_states [LeaderAndIsrPartitionState] 0-1
      topic_name str 0-1 ~, partition_index i32, controller_epoch i32, leader i32, leader_epoch i32, isr [i32]
      partition_epoch i32, replicas [i32], adding_replicas [i32] 3+ ~, removing_replicas [i32] 3+ ~
      is_new bool 1+ ~, leader_recovery_state i8 6+
    topic_states [LeaderAndIsrTopicState] 2+
      topic_name str, topic_id uuid 5+ ~
      partition_states [LeaderAndIsrPartitionState]
    live_leaders [LeaderAndIsrLiveLeader]
      broker_id i32, host_name str, port i32
  response
    error_code i16
    partition_errors [LeaderAndIsrPartitionError] 0-4
      topic_name str 0-4 ~, partition_index i32, error_code i16
    topics [LeaderAndIsrTopicError] 5+
      topic_id uuid
      partition_errors [LeaderAndIsrPartitionError]

api StopReplica 5 0-4 flexible 2+
  request
    controller_id i32, is_kraft_controller bool 4+, controller_epoch i32, broker_epoch i64 1+ =-1 ~
    delete_partitions bool 0-2
    ungrouped_partitions [StopReplicaPartitionV0] 0
      topic_name str, partition_index i32
    topics [StopReplicaTopicV1] 1-2
      name str, partition_indexes [i32]
    topic_states [StopReplicaTopicState] 3+
      topic_name str
      partition_states [StopReplicaPartitionState]
        partition_index i32, leader_epoch i32 =-1, delete_partition bool
  response
    error_code i16
    partition_errors [StopReplicaPartitionError]
      topic_name str, partition_index i32, error_code i16

api UpdateMetadata 6 0-8 flexible 6+
  request
    controller_id i32, is_kraft_controller bool 8+, type i8 8+ tag0, controller_epoch i32
    broker_epoch i64 5+ =-1 ~
    ungrouped_partition_states [UpdateMetadataPartitionState] 0-4
      topic_name str 0-4 ~, partition_index i32, controller_epoch i32, leader i32, leader_epoch i32, isr [i32]
      zk_version i32, replicas [i32], offline_replicas [i32] 4+ ~
    topic_states [UpdateMetadataTopicState] 5+
      topic_name str, topic_id uuid 7+ ~
      partition_states [UpdateMetadataPartitionState]
    live_brokers [UpdateMetadataBroker]
      id i32, v0_host str 0 ~, v0_port i32 0 ~
      endpoints [UpdateMetadataEndpoint] 1+ ~
        port i32, host str, listener str 3+ ~, security_protocol i16
      rack str? 2+ ~
  response
    error_code i16

api ControlledShutdown 7 0-3 flexible 3+
  request
    broker_id i32, broker_epoch i64 2+ =-1 ~
  response
    error_code i16
    remaining_partitions [RemainingPartition]
      topic_name str, partition_index i32

api AlterPartition 56 0-3 flexible 0+
  request
    broker_id i32, broker_epoch i64 =-1
    topics [AlterPartitionRequestTopicData]
      topic_name str 0-1 ~, topic_id uuid 2+ ~
      partitions [AlterPartitionRequestPartitionData]
        partition_index i32, leader_epoch i32, new_isr [i32] 0-2
        new_isr_with_epochs [BrokerState] 3+
          broker_id i32, broker_epoch i64 =-1
        leader_recovery_state i8 1+, partition_epoch i32
  response
    throttle_time_ms i32, error_code i16
    topics [AlterPartitionResponseTopicData]
      topic_name str 0-1 ~, topic_id uuid 2+ ~
      partitions [AlterPartitionResponsePartitionData]
        partition_index i32, error_code i16, leader_id i32, leader_epoch i32, isr [i32]
        leader_recovery_state i8 1+ ~, partition_epoch i32

api AllocateProducerIds 67 0 flexible 0+
  request
    broker_id i32, broker_epoch i64 =-1
  response
    throttle_time_ms i32, error_code i16, producer_id_start i64, producer_id_len i32
"""
