"""Errors between a client and brokers, and how a client recovers from each error code.

Source: Errors.java, RetriableException.java, InvalidMetadataException.java and their subclasses (3.9).
"""

from typing import Final

from klamm.model.errors import ErrorCode, KlammError


class ConnectionLost(KlammError):
    """The connection could not be made, or ended before the response."""


class NotConnected(ConnectionLost):
    """The connection could not be made: the request was not sent."""


class ConnectionRefused(NotConnected):
    """No process listens at the address: the machine itself refused the connection."""


class AnswerTimedOut(ConnectionLost):
    """The response did not come in time; the connection was closed."""


class UnsupportedVersion(KlammError):
    """The broker offers no version of the API that the request can be sent in."""


class RetriableError(KlammError):
    """This attempt failed but a retry may succeed; the text says why."""


class NoBrokerAnswers(RetriableError):
    """None of the known brokers answered a request for metadata; the text has all causes."""


class Unreachable(KlammError):
    """No attempt succeeded in the time allowed; the text has the last cause."""

    def __init__(self, what: str, total_s: float, cause: Exception) -> None:
        is_lost = isinstance(cause, ConnectionLost | NoBrokerAnswers)
        remedy = ". Check that the brokers run, and their addresses." if is_lost else ""
        super().__init__(f"{what}: no attempt succeeded within {total_s:g} s; the last error: {cause}{remedy}")
        self.cause = cause


class RequestRefused(KlammError):
    """The broker answered with an error code that is not retriable."""

    def __init__(self, subject: object, code: int) -> None:
        super().__init__(f"{subject}: the broker refused the request with {code_name(code)}")
        self.code = code


class DeliveryFailed(KlammError):
    """A broker refused records permanently."""


RETRIABLE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        # Apache Kafka's clients give up on these two. A read can be repeated without harm, and both pass: a broker that
        # is leaving, and a mistake of one broker while its neighbours do well.
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""The error codes after which a client tries again, with new metadata; all others are final."""


def is_retriable(code: int) -> bool:
    """Whether a client may try again after this error code; an unknown code is final."""
    return code in RETRIABLE


def code_name(code: int) -> str:
    """Kafka's name of an error code, or its number where the name is not known here."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"


def retriable_or_raise(subject: object, code: int) -> str:
    """The text of a retriable error on `subject`, as the cause of a retry. Raises RequestRefused for other codes."""
    if not is_retriable(code):
        raise RequestRefused(subject, code)
    return f"{subject}: {code_name(code)}"
