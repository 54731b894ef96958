"""Configs and client quotas. Notation: `klamm.wire.notation`; facts: Kafka 3.9."""

TABLE = """
api DescribeConfigs 32 0-4 flexible 4+
  request
    resources [DescribeConfigsResource]
      resource_type i8, resource_name str, configuration_keys [str]?
    include_synonyms bool 1+, include_documentation bool 3+
  response
    throttle_time_ms i32
    results [DescribeConfigsResult]
      error_code i16, error_message str?, resource_type i8, resource_name str
      configs [DescribeConfigsResourceResult]
        name str, value str?, read_only bool, is_default bool 0, config_source i8 1+ =-1 ~, is_sensitive bool
        synonyms [DescribeConfigsSynonym] 1+ ~
          name str, value str?, source i8
        config_type i8 3+ ~, documentation str? 3+ ~

api AlterConfigs 33 0-2 flexible 2+
  request
    resources [AlterConfigsRequestAlterConfigsResource]
      resource_type i8, resource_name str
      configs [AlterConfigsRequestAlterableConfig]
        name str, value str?
    validate_only bool
  response
    throttle_time_ms i32
    responses [AlterConfigsResponseAlterConfigsResourceResponse]
      error_code i16, error_message str?, resource_type i8, resource_name str

api IncrementalAlterConfigs 44 0-1 flexible 1+
  request
    resources [IncrementalAlterConfigsRequestAlterConfigsResource]
      resource_type i8, resource_name str
      configs [IncrementalAlterConfigsRequestAlterableConfig]
        name str, config_operation i8, value str?
    validate_only bool
  response
    throttle_time_ms i32
    responses [IncrementalAlterConfigsResponseAlterConfigsResourceResponse]
      error_code i16, error_message str?, resource_type i8, resource_name str

api DescribeClientQuotas 48 0-1 flexible 1+
  request
    components [ComponentData]
      entity_type str, match_type i8, match str?
    strict bool
  response
    throttle_time_ms i32, error_code i16, error_message str?
    entries [DescribeClientQuotasResponseEntryData]?
      entity [DescribeClientQuotasResponseEntityData]
        entity_type str, entity_name str?
      values [ValueData]
        key str, value f64

api AlterClientQuotas 49 0-1 flexible 1+
  request
    entries [AlterClientQuotasRequestEntryData]
      entity [AlterClientQuotasRequestEntityData]
        entity_type str, entity_name str?
      ops [OpData]
        key str, value f64, remove bool
    validate_only bool
  response
    throttle_time_ms i32
    entries [AlterClientQuotasResponseEntryData]
      error_code i16, error_message str?
      entity [AlterClientQuotasResponseEntityData]
        entity_type str, entity_name str?
"""
