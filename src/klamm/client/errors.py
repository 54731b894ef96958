"""Errors between a client and brokers, and how a client recovers from each error code.

Source: Errors.java, RetriableException.java, InvalidMetadataException.java and their subclasses (3.9).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from klamm.model.errors import ErrorCode, KlammError


class ConnectionLost(KlammError):
    """The connection could not be made, or ended before the response."""


class ConnectionRefused(ConnectionLost):
    """No process listens at the address: the machine itself refused the connection."""


class AnswerTimedOut(ConnectionLost):
    """The response did not come in time; the connection was closed."""


class UnsupportedVersion(KlammError):
    """The broker offers no version of the API that the request can be sent in."""


class RetriableError(KlammError):
    """This attempt failed but a retry may succeed; the text says why."""


class Unreachable(KlammError):
    """No attempt succeeded in the time allowed; the text has the last cause."""

    def __init__(self, what: str, total_s: float, cause: Exception) -> None:
        remedy = ". Check that the brokers run, and their addresses." if isinstance(cause, ConnectionLost) else ""
        super().__init__(f"{what}: no attempt succeeded within {total_s:g} s; the last error: {cause}{remedy}")
        self.cause = cause


class RequestRefused(KlammError):
    """The broker answered with an error code that is not retriable."""

    def __init__(self, subject: object, code: int) -> None:
        super().__init__(f"{subject}: the broker refused the request with {code_name(code)}")
        self.code = code


class DeliveryFailed(KlammError):
    """A broker refused records for good."""


class Recovery(NamedTuple):
    """Whether a retry helps, and whether the metadata must be refreshed first."""

    retriable: bool
    refresh_metadata: bool


_FINAL: Final = Recovery(retriable=False, refresh_metadata=False)
"""A retry does not help."""
_AGAIN: Final = Recovery(retriable=True, refresh_metadata=False)
"""A retry may help, with the same metadata."""
_ELSEWHERE: Final = Recovery(retriable=True, refresh_metadata=True)
"""A retry may help, after a refresh of the metadata."""

RECOVERY: Final[Mapping[int, Recovery]] = {
    ErrorCode.CORRUPT_MESSAGE: _AGAIN,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _ELSEWHERE,
    ErrorCode.LEADER_NOT_AVAILABLE: _ELSEWHERE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _ELSEWHERE,
    ErrorCode.REQUEST_TIMED_OUT: _AGAIN,
    ErrorCode.REPLICA_NOT_AVAILABLE: _ELSEWHERE,
    ErrorCode.NETWORK_EXCEPTION: _ELSEWHERE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _AGAIN,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _ELSEWHERE,
    ErrorCode.NOT_COORDINATOR: _ELSEWHERE,
    ErrorCode.NOT_ENOUGH_REPLICAS: _AGAIN,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _AGAIN,
    ErrorCode.NOT_CONTROLLER: _ELSEWHERE,
    ErrorCode.CONCURRENT_TRANSACTIONS: _AGAIN,
    ErrorCode.KAFKA_STORAGE_ERROR: _ELSEWHERE,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: _AGAIN,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: _AGAIN,
    ErrorCode.LISTENER_NOT_FOUND: _ELSEWHERE,
    ErrorCode.FENCED_LEADER_EPOCH: _ELSEWHERE,
    ErrorCode.UNKNOWN_LEADER_EPOCH: _AGAIN,
    ErrorCode.OFFSET_NOT_AVAILABLE: _AGAIN,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: _ELSEWHERE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: _ELSEWHERE,
    ErrorCode.ELECTION_NOT_NEEDED: _ELSEWHERE,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: _AGAIN,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: _AGAIN,
    ErrorCode.UNKNOWN_TOPIC_ID: _ELSEWHERE,
    ErrorCode.INCONSISTENT_TOPIC_ID: _ELSEWHERE,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: _AGAIN,
    # Apache Kafka's clients give up on these two. A read can be repeated without harm, and both pass: a broker that
    # is leaving, and a mistake of one broker while its neighbours do well.
    ErrorCode.BROKER_NOT_AVAILABLE: _ELSEWHERE,
    ErrorCode.UNKNOWN_SERVER_ERROR: _ELSEWHERE,
}
"""Codes that are not here are final."""


def recovery(code: int) -> Recovery:
    """How a client recovers from an error code; an unknown code is final."""
    return RECOVERY.get(code, _FINAL)


def code_name(code: int) -> str:
    """Kafka's name of an error code, or its number where the name is not known here."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"


def retriable_or_raise(subject: object, code: int) -> str:
    """The text of a retriable error on `subject`, as the cause of a retry. Raises RequestRefused for other codes."""
    if not recovery(code).retriable:
        raise RequestRefused(subject, code)
    return f"{subject}: {code_name(code)}"
