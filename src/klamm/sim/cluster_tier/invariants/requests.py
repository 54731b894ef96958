"""Requests to a cluster at rest: what each is answered, and how soon."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class RestAnswer(NamedTuple):
    """An answer to a request, or what became of it."""

    what: str
    took_s: float
    most_s: float
    """How long it may take."""
    wrong: str
    """Why it is not what the request has to be answered; empty where it is."""


class AskedCluster(Protocol):
    """What invariants look at."""

    @property
    def rest_answers(self) -> Sequence[RestAnswer]:
        """The answers to requests that were sent after the checks at rest."""
        ...


def requests_are_answered_correctly(cluster: AskedCluster) -> str | None:
    """A cluster at rest answers each request as Kafka does."""
    return next((f"{answer.what}: {answer.wrong}" for answer in cluster.rest_answers if answer.wrong), None)


def requests_are_answered_in_time(cluster: AskedCluster) -> str | None:
    """A request that waits is answered as soon as what it waits for has happened."""
    for answer in cluster.rest_answers:
        if answer.took_s > answer.most_s:
            return f"{answer.what}: answered after {answer.took_s:.3f} s; {answer.most_s} s would be enough"
    return None
