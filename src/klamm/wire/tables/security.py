"""Authentication, ACLs, tokens, SCRAM credentials. Notation: `klamm.wire.notation`; facts: Kafka 3.9."""

TABLE = """
api SaslHandshake 17 0-1
  request
    mechanism str
  response
    error_code i16, mechanisms [str]

api SaslAuthenticate 36 0-2 flexible 2+
  request
    auth_bytes bytes
  response
    error_code i16, error_message str?, auth_bytes bytes, session_lifetime_ms i64 1+ ~

api DescribeAcls 29 0-3 flexible 2+
  request
    resource_type_filter i8, resource_name_filter str?, pattern_type_filter i8 1+ =3, principal_filter str?
    host_filter str?, operation i8, permission_type i8
  response
    throttle_time_ms i32, error_code i16, error_message str?
    resources [DescribeAclsResource]
      resource_type i8, resource_name str, pattern_type i8 1+ =3
      acls [AclDescription]
        principal str, host str, operation i8, permission_type i8

api CreateAcls 30 0-3 flexible 2+
  request
    creations [AclCreation]
      resource_type i8, resource_name str, resource_pattern_type i8 1+ =3, principal str, host str, operation i8
      permission_type i8
  response
    throttle_time_ms i32
    results [AclCreationResult]
      error_code i16, error_message str?

api DeleteAcls 31 0-3 flexible 2+
  request
    filters [DeleteAclsFilter]
      resource_type_filter i8, resource_name_filter str?, pattern_type_filter i8 1+ =3, principal_filter str?
      host_filter str?, operation i8, permission_type i8
  response
    throttle_time_ms i32
    filter_results [DeleteAclsFilterResult]
      error_code i16, error_message str?
      matching_acls [DeleteAclsMatchingAcl]
        error_code i16, error_message str?, resource_type i8, resource_name str, pattern_type i8 1+ =3
        principal str, host str, operation i8, permission_type i8

api CreateDelegationToken 38 0-3 flexible 2+
  request
    owner_principal_type str? 3+, owner_principal_name str? 3+
    renewers [CreatableRenewers]
      principal_type str, principal_name str
    max_lifetime_ms i64
  response
    error_code i16, principal_type str, principal_name str, token_requester_principal_type str 3+
    token_requester_principal_name str 3+, issue_timestamp_ms i64, expiry_timestamp_ms i64, max_timestamp_ms i64
    token_id str, hmac bytes, throttle_time_ms i32

api RenewDelegationToken 39 0-2 flexible 2+
  request
    hmac bytes, renew_period_ms i64
  response
    error_code i16, expiry_timestamp_ms i64, throttle_time_ms i32

api ExpireDelegationToken 40 0-2 flexible 2+
  request
    hmac bytes, expiry_time_period_ms i64
  response
    error_code i16, expiry_timestamp_ms i64, throttle_time_ms i32

api DescribeDelegationToken 41 0-3 flexible 2+
  request
    owners [DescribeDelegationTokenOwner]?
      principal_type str, principal_name str
  response
    error_code i16
    tokens [DescribedDelegationToken]
      principal_type str, principal_name str, token_requester_principal_type str 3+
      token_requester_principal_name str 3+, issue_timestamp i64, expiry_timestamp i64, max_timestamp i64
      token_id str, hmac bytes
      renewers [DescribedDelegationTokenRenewer]
        principal_type str, principal_name str
    throttle_time_ms i32

api DescribeUserScramCredentials 50 0 flexible 0+
  request
    users [UserName]?
      name str
  response
    throttle_time_ms i32, error_code i16, error_message str?
    results [DescribeUserScramCredentialsResult]
      user str, error_code i16, error_message str?
      credential_infos [CredentialInfo]
        mechanism i8, iterations i32

api AlterUserScramCredentials 51 0 flexible 0+
  request
    deletions [ScramCredentialDeletion]
      name str, mechanism i8
    upsertions [ScramCredentialUpsertion]
      name str, mechanism i8, iterations i32, salt bytes, salted_password bytes
  response
    throttle_time_ms i32
    results [AlterUserScramCredentialsResult]
      user str, error_code i16, error_message str?
"""
