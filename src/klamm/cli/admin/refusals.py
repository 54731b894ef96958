"""What a cluster refused, in one sentence each: what it was about, why, Kafka's code, and what helps."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from klamm.cli.admin.client import code_name
from klamm.cli.output import print_error
from klamm.model.errors import ErrorCode

_REMEDIES: Final[Mapping[int, str]] = {
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or say --if-not-exists",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`klamm topics list` shows what there is",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "letters, digits, '.', '_' and '-', at most 249 of them",
    ErrorCode.INVALID_REPLICATION_FACTOR: "`klamm brokers` shows how many brokers there are",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "`klamm brokers` shows which brokers there are",
    ErrorCode.INVALID_PARTITIONS: "a topic can only grow",
    ErrorCode.INVALID_CONFIG: "`klamm config explain KEY` tells what a key may be",
    ErrorCode.TOPIC_DELETION_DISABLED: "the brokers have delete.topic.enable=false",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "`klamm reassign status` shows what moves; wait, or `klamm reassign cancel`",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "`klamm reassign list` shows what moves",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "start that broker, or wait until it is in the ISR",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "start a broker that holds a replica",
    ErrorCode.REQUEST_TIMED_OUT: "it may still come about: look, or give it more --timeout",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "another principal has to ask",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "another principal has to ask",
    ErrorCode.POLICY_VIOLATION: "the operator's policy forbids it",
}


class Refusal(NamedTuple):
    subject: str
    """For example `topic orders`."""
    code: int
    message: str | None

    def __str__(self) -> str:
        name = code_name(self.code)
        said = (self.message or "").strip().rstrip(".")
        remedy = _REMEDIES.get(self.code)
        return f"{self.subject}: {f'{said} ({name})' if said else name}{f'; {remedy}' if remedy else ''}"

    def as_data(self) -> dict[str, Any]:
        return {"subject": self.subject, "error": code_name(self.code), "message": self.message}


def complain_of(refusals: Sequence[Refusal]) -> int:
    """Each on a line of its own; the exit status."""
    for refusal in refusals:
        print_error(str(refusal))
    return 1 if refusals else 0
