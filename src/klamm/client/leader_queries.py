"""One question to the leaders of many partitions, repeated for those that did not answer.

Source: OffsetFetcher.java.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from klamm.client.backoff import Backoff
from klamm.client.cluster import ClusterMetadata
from klamm.client.errors import ConnectionLost, RetriableError, UnsupportedVersion, retriable_or_raise
from klamm.client.steps import Ask, Steps, Wait
from klamm.client.versions import Request
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition

V = TypeVar("V")
R = TypeVar("R")
Epochs = Mapping[TopicPartition, int]
"""The epoch in which each partition's leader is asked; NO_EPOCH where brokers tell none."""


class Result(NamedTuple, Generic[R]):
    """What a response has for one partition; `value` counts where there is no error code."""

    partition: TopicPartition
    error_code: int
    value: R


class LeaderQuery(NamedTuple, Generic[V, R]):
    what: str
    """The name of the API, for error texts."""
    build: Callable[[Mapping[TopicPartition, V], Epochs], Request]
    """The request for partitions of one leader."""
    results: Callable[[Any], Iterable[Result[R]]]
    if_unsupported: R | None = None
    """The result for partitions of a leader without a version of the API; None: UnsupportedVersion is raised."""


def ask_leaders(
    cluster: ClusterMetadata, wanted: Mapping[TopicPartition, V], query: LeaderQuery[V, R], backoff: Backoff
) -> Steps[dict[TopicPartition, R]]:
    """Ask the leader of each partition until all answered. Raises Unreachable, RequestRefused, TopicGone."""
    found: dict[TopicPartition, R] = {}
    while missing := {p: value for p, value in wanted.items() if p not in found}:
        causes: list[str] = []
        groups = yield from _group_by_leader(cluster, missing, causes)
        for address, group in groups.items():
            epochs = {p: cluster.leader_epoch(p) for p in group}
            try:
                answer = yield Ask(address, query.build(group, epochs))
            except ConnectionLost as error:
                causes.append(str(error))
                continue
            except UnsupportedVersion:
                if query.if_unsupported is None:
                    raise
                found |= dict.fromkeys(group, query.if_unsupported)
                continue
            _collect(cluster, query.results(answer), found, causes)
        if len(found) < len(wanted):
            yield Wait(backoff.next_wait_s(query.what, RetriableError("; ".join(causes))))
    return dict(sorted(found.items()))


def _group_by_leader(
    cluster: ClusterMetadata, wanted: Mapping[TopicPartition, V], causes: list[str]
) -> Steps[dict[Address, dict[TopicPartition, V]]]:
    """Group partitions by their leader's address; reasons for those without a leader are added to `causes`."""
    groups: defaultdict[Address, dict[TopicPartition, V]] = defaultdict(dict)
    try:
        leaders = yield from cluster.leaders(wanted)
    except RetriableError as error:
        causes.append(str(error))
        return groups
    for partition, value in wanted.items():
        if partition in leaders:
            groups[leaders[partition]][partition] = value
        else:
            causes.append(cluster.no_leader_reason(partition))
    return groups


def _collect(
    cluster: ClusterMetadata, results: Iterable[Result[R]], found: dict[TopicPartition, R], causes: list[str]
) -> None:
    """Add a response's results to `found`; retriable errors go to `causes`, others are raised."""
    for partition, code, value in results:
        if code == ErrorCode.NONE:
            found[partition] = value
        else:
            cluster.forget_leader(partition)
            causes.append(retriable_or_raise(partition, code))
