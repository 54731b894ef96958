"""Which error codes another try may cure, against Apache Kafka's own table (Errors.java, 3.9)."""

import pytest

from klamm.client.errors import RequestRefused, code_name, is_retriable, retriable_or_raise
from klamm.model.errors import ErrorCode

RETRIABLE = {
    "UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "REPLICA_NOT_AVAILABLE",
    "NETWORK_EXCEPTION", "KAFKA_STORAGE_ERROR", "LISTENER_NOT_FOUND", "FENCED_LEADER_EPOCH", "ELECTION_NOT_NEEDED",
    "PREFERRED_LEADER_NOT_AVAILABLE", "ELIGIBLE_LEADERS_NOT_AVAILABLE", "UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID",
    "CORRUPT_MESSAGE", "REQUEST_TIMED_OUT", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_CONTROLLER",
    "CONCURRENT_TRANSACTIONS", "FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH", "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE", "UNSTABLE_OFFSET_COMMIT", "THROTTLING_QUOTA_EXCEEDED", "FETCH_SESSION_TOPIC_ID_ERROR",
}  # fmt: skip
"""Codes whose exception is a RetriableException."""
OURS = {"BROKER_NOT_AVAILABLE", "UNKNOWN_SERVER_ERROR"}


def test_the_client_retries_kafkas_retriable_error_codes_and_two_more() -> None:
    assert {code.name for code in ErrorCode if is_retriable(code)} == RETRIABLE | OURS


def test_a_retriable_error_code_is_returned_as_text_and_any_other_raises_request_refused() -> None:
    assert retriable_or_raise("orders-0", ErrorCode.REQUEST_TIMED_OUT) == "orders-0: REQUEST_TIMED_OUT"
    with pytest.raises(
        RequestRefused, match="orders-0: the broker refused the request with TOPIC_AUTHORIZATION_FAILED"
    ):
        retriable_or_raise("orders-0", ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def test_an_unknown_error_code_is_printed_as_its_number() -> None:
    assert code_name(999) == "error code 999"
    with pytest.raises(RequestRefused, match="error code 999"):
        retriable_or_raise("orders-0", 999)
