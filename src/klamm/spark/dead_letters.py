"""Records that could not be decoded, written to a topic with where they were and why. Source: KIP-298 (its idea)."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from klamm.client.cluster import TopicGone
from klamm.client.errors import RetriableError, retriable_or_raise
from klamm.client.records import produce_error_code, produce_request
from klamm.client.steps import Ask, Steps, retried
from klamm.model.ids import TopicPartition
from klamm.spark.errors import BadOption
from klamm.spark.read_client import ReadClient
from klamm.wire.records import NewRecord, build_batch

MAX_BATCH_BYTES: Final = 512 << 10
"""Below the default of max.message.bytes; a single larger record is a batch of its own."""
HEADER_PREFIX: Final = "klamm."


def dead_letter(record: NewRecord, partition: TopicPartition, offset: int, reason: str) -> NewRecord:
    """The record with headers that say where it was and why it could not be decoded."""
    facts = {"topic": partition.topic, "partition": partition.partition, "offset": offset, "error": reason}
    added = [(f"{HEADER_PREFIX}{name}", str(fact).encode()) for name, fact in facts.items()]
    return record._replace(headers=(*record.headers, *added))


def write_dead_letters(brokers: ReadClient, topic: str, letters: Sequence[tuple[int, NewRecord]]) -> None:
    """Write records, each with the partition from which it came, and wait until all in-sync replicas have them.

    A task that is run again writes them again; topic, partition and offset in the headers tell which are equal. Raises
    BadOption where the topic does not exist, RequestRefused, Unreachable.
    """
    found = brokers.topics([topic])[topic]
    count = len(found.partitions)
    if not count:
        raise BadOption(f"option onDecodeError: topic {topic} does not exist; create it")
    chosen: defaultdict[int, list[NewRecord]] = defaultdict(list)
    for source, letter in letters:
        chosen[source % count].append(letter)
    for number, records in sorted(chosen.items()):
        for part in _parts(records):
            _write(brokers, TopicPartition(topic, number), build_batch(part))


def _parts(records: Sequence[NewRecord]) -> list[list[NewRecord]]:
    """Split the dead letters into batches of limited size."""
    parts: list[list[NewRecord]] = [[]]
    size = 0
    for record in records:
        needed = len(record.value or b"") + len(record.key or b"") + sum(len(v or b"") for _, v in record.headers) + 100
        if parts[-1] and size + needed > MAX_BATCH_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(record)
        size += needed
    return parts


def _write(brokers: ReadClient, partition: TopicPartition, batch: bytes) -> None:
    """Write one batch. Raises BadOption where the topic is deleted, RequestRefused, Unreachable."""
    backoff = brokers.backoff(brokers.options.api_timeout_s)
    try:
        brokers.client.run(retried(f"writing to {partition}", lambda: _attempt(brokers, partition, batch), backoff))
    except TopicGone as gone:
        raise BadOption(
            f"option onDecodeError: cannot write to the topic, because {gone.reason}; create the topic"
        ) from gone


def _attempt(brokers: ReadClient, partition: TopicPartition, batch: bytes) -> Steps[None]:
    """Write the batch to the partition's leader once."""
    address = yield from brokers.cluster.leader(partition)
    answer = yield Ask(address, produce_request(partition, batch, brokers.options.request_timeout_s))
    if code := produce_error_code(answer):
        brokers.cluster.forget_leader(partition)
        raise RetriableError(retriable_or_raise(partition, code))
