"""The cluster: API versions, metadata, brokers, features. Notation: `klamm.wire.notation`; facts: Kafka 3.9."""

TABLE = """
api Metadata 3 0-12 flexible 9+
  request
    topics [MetadataRequestTopic]?1+
      topic_id uuid 10+ ~, name str?10+
    allow_auto_topic_creation bool 4+ =true, include_cluster_authorized_operations bool 8-10
    include_topic_authorized_operations bool 8+
  response
    throttle_time_ms i32 3+ ~
    brokers [MetadataResponseBroker]
      node_id i32, host str, port i32, rack str? 1+ =null ~
    cluster_id str? 2+ =null ~, controller_id i32 1+ =-1 ~
    topics [MetadataResponseTopic]
      error_code i16, name str?12+, topic_id uuid 10+ ~, is_internal bool 1+ ~
      partitions [MetadataResponsePartition]
        error_code i16, partition_index i32, leader_id i32, leader_epoch i32 7+ =-1 ~, replica_nodes [i32]
        isr_nodes [i32], offline_replicas [i32] 5+ ~
      topic_authorized_operations i32 8+ =-2147483648
    cluster_authorized_operations i32 8-10 =-2147483648

api ApiVersions 18 0-4 flexible 3+
  request
    client_software_name str 3+ ~, client_software_version str 3+ ~
  response
    error_code i16
    api_keys [ApiVersion]
      api_key i16, min_version i16, max_version i16
    throttle_time_ms i32 1+ ~
    supported_features [SupportedFeatureKey] 3+ tag0 ~
      name str, min_version i16, max_version i16
    finalized_features_epoch i64 3+ =-1 tag1 ~
    finalized_features [FinalizedFeatureKey] 3+ tag2 ~
      name str, max_version_level i16, min_version_level i16
    zk_migration_ready bool 3+ tag3 ~

api UpdateFeatures 57 0-1 flexible 0+
  request
    timeout_ms i32 =60000
    feature_updates [FeatureUpdateKey]
      feature str, max_version_level i16, allow_downgrade bool 0, upgrade_type i8 1+ =1
    validate_only bool 1+
  response
    throttle_time_ms i32, error_code i16, error_message str?
    results [UpdatableFeatureResult]
      feature str, error_code i16, error_message str?

api Envelope 58 0 flexible 0+
  request
    request_data bytes, request_principal bytes?, client_host_address bytes
  response
    response_data bytes? =null, error_code i16

api DescribeCluster 60 0-1 flexible 0+
  request
    include_cluster_authorized_operations bool, endpoint_type i8 1+ =1
  response
    throttle_time_ms i32, error_code i16, error_message str? =null, endpoint_type i8 1+ =1, cluster_id str
    controller_id i32 =-1
    brokers [DescribeClusterBroker]
      broker_id i32, host str, port i32, rack str? =null
    cluster_authorized_operations i32 =-2147483648
"""
