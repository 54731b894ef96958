"""Consumer groups and their offsets. Notation: `klamm.wire.notation`; facts: Kafka 3.9."""

TABLE = """
api OffsetCommit 8 0-9 flexible 8+
  request
    group_id str, generation_id_or_member_epoch i32 1+ =-1 ~, member_id str 1+ ~
    group_instance_id str? 7+ =null, retention_time_ms i64 2-4 =-1 ~
    topics [OffsetCommitRequestTopic]
      name str
      partitions [OffsetCommitRequestPartition]
        partition_index i32, committed_offset i64, committed_leader_epoch i32 6+ =-1 ~
        commit_timestamp i64 1 =-1, committed_metadata str?
  response
    throttle_time_ms i32 3+ ~
    topics [OffsetCommitResponseTopic]
      name str
      partitions [OffsetCommitResponsePartition]
        partition_index i32, error_code i16

api OffsetFetch 9 0-9 flexible 6+
  request
    group_id str 0-7
    topics [OffsetFetchRequestTopic]?2+ 0-7
      name str, partition_indexes [i32]
    groups [OffsetFetchRequestGroup] 8+
      group_id str, member_id str? 9+ =null ~, member_epoch i32 9+ =-1 ~
      topics [OffsetFetchRequestTopics]?
        name str, partition_indexes [i32]
    require_stable bool 7+
  response
    throttle_time_ms i32 3+ ~
    topics [OffsetFetchResponseTopic] 0-7
      name str
      partitions [OffsetFetchResponsePartition]
        partition_index i32, committed_offset i64, committed_leader_epoch i32 5+ =-1 ~, metadata str?
        error_code i16
    error_code i16 2-7 ~
    groups [OffsetFetchResponseGroup] 8+
      group_id str
      topics [OffsetFetchResponseTopics]
        name str
        partitions [OffsetFetchResponsePartitions]
          partition_index i32, committed_offset i64, committed_leader_epoch i32 =-1 ~, metadata str?
          error_code i16
      error_code i16

api FindCoordinator 10 0-6 flexible 3+
  request
    key str 0-3, key_type i8 1+, coordinator_keys [str] 4+
  response
    throttle_time_ms i32 1+ ~, error_code i16 0-3, error_message str? 1-3 ~, node_id i32 0-3, host str 0-3
    port i32 0-3
    coordinators [Coordinator] 4+
      key str, node_id i32, host str, port i32, error_code i16, error_message str? ~

api JoinGroup 11 0-9 flexible 6+
  request
    group_id str, session_timeout_ms i32, rebalance_timeout_ms i32 1+ =-1 ~, member_id str
    group_instance_id str? 5+ =null, protocol_type str
    protocols [JoinGroupRequestProtocol]
      name str, metadata bytes
    reason str? 8+ =null ~
  response
    throttle_time_ms i32 2+ ~, error_code i16, generation_id i32 =-1, protocol_type str? 7+ =null ~
    protocol_name str?7+, leader str, skip_assignment bool 9+, member_id str
    members [JoinGroupResponseMember]
      member_id str, group_instance_id str? 5+ =null ~, metadata bytes

api Heartbeat 12 0-4 flexible 4+
  request
    group_id str, generation_id i32, member_id str, group_instance_id str? 3+ =null
  response
    throttle_time_ms i32 1+ ~, error_code i16

api LeaveGroup 13 0-5 flexible 4+
  request
    group_id str, member_id str 0-2
    members [MemberIdentity] 3+
      member_id str, group_instance_id str? =null, reason str? 5+ =null ~
  response
    throttle_time_ms i32 1+ ~, error_code i16
    members [MemberResponse] 3+
      member_id str, group_instance_id str?, error_code i16

api SyncGroup 14 0-5 flexible 4+
  request
    group_id str, generation_id i32, member_id str, group_instance_id str? 3+ =null
    protocol_type str? 5+ =null ~, protocol_name str? 5+ =null ~
    assignments [SyncGroupRequestAssignment]
      member_id str, assignment bytes
  response
    throttle_time_ms i32 1+ ~, error_code i16, protocol_type str? 5+ =null ~, protocol_name str? 5+ =null ~
    assignment bytes

api DescribeGroups 15 0-5 flexible 5+
  request
    groups [str], include_authorized_operations bool 3+
  response
    throttle_time_ms i32 1+ ~
    groups [DescribeGroupsResponseDescribedGroup]
      error_code i16, group_id str, group_state str, protocol_type str, protocol_data str
      members [DescribedGroupMember]
        member_id str, group_instance_id str? 4+ =null ~, client_id str, client_host str, member_metadata bytes
        member_assignment bytes
      authorized_operations i32 3+ =-2147483648

api ListGroups 16 0-5 flexible 3+
  request
    states_filter [str] 4+, types_filter [str] 5+
  response
    throttle_time_ms i32 1+ ~, error_code i16
    groups [ListedGroup]
      group_id str, protocol_type str, group_state str 4+ ~, group_type str 5+ ~

api DeleteGroups 42 0-2 flexible 2+
  request
    groups_names [str]
  response
    throttle_time_ms i32
    results [DeletableGroupResult]
      group_id str, error_code i16

api OffsetDelete 47 0
  request
    group_id str
    topics [OffsetDeleteRequestTopic]
      name str
      partitions [OffsetDeleteRequestPartition]
        partition_index i32
  response
    error_code i16, throttle_time_ms i32 ~
    topics [OffsetDeleteResponseTopic]
      name str
      partitions [OffsetDeleteResponsePartition]
        partition_index i32, error_code i16

api ConsumerGroupHeartbeat 68 0 flexible 0+
  request
    group_id str, member_id str, member_epoch i32, instance_id str? =null, rack_id str? =null
    rebalance_timeout_ms i32 =-1, subscribed_topic_names [str]? =null, server_assignor str? =null
    topic_partitions [ConsumerGroupHeartbeatRequestTopicPartitions]? =null
      topic_id uuid, partitions [i32]
  response
    throttle_time_ms i32, error_code i16, error_message str? =null, member_id str? =null, member_epoch i32
    heartbeat_interval_ms i32
    assignment ConsumerGroupHeartbeatResponseAssignment? =null
      topic_partitions [ConsumerGroupHeartbeatResponseTopicPartitions]
        topic_id uuid, partitions [i32]

api ConsumerGroupDescribe 69 0 flexible 0+
  request
    group_ids [str], include_authorized_operations bool
  response
    throttle_time_ms i32
    groups [ConsumerGroupDescribeResponseDescribedGroup]
      error_code i16, error_message str? =null, group_id str, group_state str, group_epoch i32
      assignment_epoch i32, assignor_name str
      members [Member]
        member_id str, instance_id str? =null, rack_id str? =null, member_epoch i32, client_id str
        client_host str, subscribed_topic_names [str], subscribed_topic_regex str? =null
        assignment ConsumerGroupDescribeResponseAssignment
          topic_partitions [ConsumerGroupDescribeResponseTopicPartitions]
            topic_id uuid, topic_name str, partitions [i32]
        target_assignment ConsumerGroupDescribeResponseAssignment
      authorized_operations i32 =-2147483648
"""
