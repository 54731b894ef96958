"""Errors that a cluster answered: the subject, the reason, Kafka's error code, and what to do."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from klamm.cli.output import print_error
from klamm.client.errors import code_name
from klamm.model.errors import ErrorCode

_REMEDIES: Final[Mapping[int, str]] = {
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or pass --if-not-exists",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`klamm topics list` shows the topics",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "use letters, digits, '.', '_' and '-', at most 249 characters",
    ErrorCode.INVALID_REPLICATION_FACTOR: "`klamm brokers` shows the brokers",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "`klamm brokers` shows the brokers",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions can only grow",
    ErrorCode.INVALID_CONFIG: "`klamm config explain KEY` shows the valid values",
    ErrorCode.TOPIC_DELETION_DISABLED: "set delete.topic.enable=true on the brokers",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "wait (`klamm reassign status`), or run `klamm reassign cancel`",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "`klamm reassign list` shows the running reassignments",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "start that broker, or wait until it is in the ISR",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "start a broker that has a replica",
    ErrorCode.REQUEST_TIMED_OUT: "it may still complete: check, or raise --timeout",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "use a principal with this permission",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "use a principal with this permission",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first; `klamm groups describe --members` shows them",
    ErrorCode.GROUP_ID_NOT_FOUND: "`klamm groups list` shows the groups",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a member reads the topic: stop it first",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "use a principal with this permission",
    ErrorCode.POLICY_VIOLATION: "the policy of the cluster forbids it",
}


class Refusal(NamedTuple):
    """An error of one topic, partition, broker or other subject in a response.

    Printed as `SUBJECT: MESSAGE (ERROR_CODE); REMEDY`.
    """

    subject: str
    """For example `topic orders`."""
    code: int
    message: str | None

    def __str__(self) -> str:
        name = code_name(self.code)
        reason = (self.message or "").strip().rstrip(".")
        remedy = _REMEDIES.get(self.code)
        return f"{self.subject}: {f'{reason} ({name})' if reason else name}{f'; {remedy}' if remedy else ''}"

    def as_data(self) -> dict[str, Any]:
        """Return the refusal for the JSON output."""
        return {"subject": self.subject, "error": code_name(self.code), "message": self.message}


def print_refusals(refusals: Sequence[Refusal]) -> int:
    """Print each refusal on a line. Returns the exit status: 1 if there are any."""
    for refusal in refusals:
        print_error(str(refusal))
    return 1 if refusals else 0
