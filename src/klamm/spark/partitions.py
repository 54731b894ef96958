"""Which partitions a read is for: what subscribe, subscribePattern or assign mean in the cluster.

Source: ConsumerStrategy.scala.
"""

import difflib
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Final

from klamm.client.cluster import topic_ids_of
from klamm.client.errors import RetriableError, code_name, is_retriable
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.spark.errors import BadOption
from klamm.spark.offsets import Bound
from klamm.spark.transport import Transport
from klamm.wire.messages import MetadataResponseTopic

_LOG: Final = logging.getLogger("klamm.spark")
MAX_TIMES_UNKNOWN: Final = 3  # a topic just created is not known to every broker at once


def find_partitions(transport: Transport) -> list[TopicPartition]:
    """Return the partitions to read, and store topic ids in the transport.

    Raises BadOption for what does not exist.
    """
    found, unknown = find_topics(transport)
    if unknown:
        raise BadOption(_unknown_topics(transport, unknown))
    transport.topic_ids = topic_ids_of(found)
    partitions = partitions_of(found, transport)
    for missing in sorted(set(transport.options.subscription.partitions or ()) - set(partitions)):
        raise BadOption(f"option assign has {missing}, which does not exist in the cluster. Remove it.")
    return partitions


def find_topics(transport: Transport) -> tuple[dict[str, MetadataResponseTopic], list[str]]:
    """Read the metadata of the topics to read; also returns the topics of subscribe or assign that do not exist.

    Raises BadOption for names that brokers refuse, Unreachable while leaders are missing.
    """
    topics, pattern, assigned = transport.options.subscription
    if pattern is not None:
        every = transport.topics(None)
        return {n: t for n, t in every.items() if re.search(pattern, n) and not t.is_internal}, []
    return _existing_topics(transport, topics or sorted({p.topic for p in assigned or ()}))


def partitions_of(topics: Mapping[str, MetadataResponseTopic], transport: Transport) -> list[TopicPartition]:
    """Return the partitions of the topics, sorted; with the option assign only those assigned."""
    every = (TopicPartition(name, p.partition_index) for name, topic in topics.items() for p in topic.partitions)
    assigned = transport.options.subscription.partitions
    return sorted(every if assigned is None else set(every) & set(assigned))


def check_complete(given: Bound, partitions: Sequence[TopicPartition]) -> None:
    """Raise BadOption unless the option names exactly the partitions to read."""
    if given.each is None:
        return
    if missing := [str(p) for p in partitions if p not in given.each]:
        raise BadOption(f"option {given.option} must have every partition of the read. Add {', '.join(missing)}.")
    if unexpected := [str(p) for p in given.each if p not in partitions]:
        raise BadOption(
            f"option {given.option} has {', '.join(unexpected)}, which subscribe, subscribePattern or assign does not "
            "include. Remove it."
        )


def warn_without_ids(transport: Transport, partitions: Sequence[TopicPartition]) -> None:
    """Log that a topic has no id, because a recreated topic then cannot be detected."""
    for topic in dict.fromkeys(p.topic for p in partitions if p.topic not in transport.topic_ids):
        _LOG.warning(
            "topic %s has no topic id, because the brokers or their inter.broker.protocol.version are older than 2.8: "
            "this read cannot notice that the topic is deleted and created again. Do not recreate it during the read.",
            topic,
        )


def _existing_topics(transport: Transport, names: Sequence[str]) -> tuple[dict[str, MetadataResponseTopic], list[str]]:
    """The metadata of the named topics, and those that stay unknown. Raises BadOption, Unreachable."""
    backoff = transport.backoff(transport.options.api_timeout_s)
    times_unknown = 0
    while True:
        found = transport.topics(names)
        codes = {n: t.error_code for n, t in found.items() if t.error_code}
        refused = {n: c for n, c in codes.items() if not is_retriable(c)}
        if refused:
            name, code = next(iter(refused.items()))
            raise BadOption(
                f"the brokers refuse to describe topic {name!r}: {code_name(code)}. Check the topic's name."
            )
        unknown = [n for n, code in codes.items() if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        times_unknown += bool(unknown)
        if len(codes) == len(unknown) and (not unknown or times_unknown >= MAX_TIMES_UNKNOWN):
            return {n: t for n, t in found.items() if n not in codes}, unknown
        cause = RetriableError(f"no leader yet for {', '.join(sorted(codes))}")
        transport.world.sleep(backoff.next_wait_s("asking for metadata", cause))


def _unknown_topics(transport: Transport, unknown: Sequence[str]) -> str:
    """The error text for topics that do not exist, with the nearest existing name."""
    near = difflib.get_close_matches(unknown[0], transport.topics(None), n=1)
    hint = f"Did you mean {near[0]}?" if near else "Correct the option subscribe or assign."
    return f"topic {', '.join(unknown)} does not exist. {hint}"
