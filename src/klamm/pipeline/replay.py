"""Dead letters read again: as the source of the same pipeline, and then deleted from their topic. Source: KIP-107."""

from collections.abc import Mapping

from klamm.client.errors import RetriableError, retriable_or_raise
from klamm.client.offsets import EARLIEST
from klamm.client.steps import Ask, Steps, retried
from klamm.client.versions import Request
from klamm.model.ids import TopicPartition
from klamm.pipeline.spec import Spec
from klamm.runtime.blocking import RealBlockingWorld
from klamm.spark.option_set import Reads
from klamm.spark.read_client import ReadClient, read_client
from klamm.spark.sink_options import write_options
from klamm.wire.api import ApiKey
from klamm.wire.messages import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

_NOT_OF_LETTERS = (
    "subscribe", "subscribepattern", "assign", "startingoffsets", "startingoffsetsbytimestamp", "startingtimestamp",
    "logdirs",
)  # fmt: skip
"""Options that say what the pipeline reads; dead letters are in another topic, which may be in another cluster."""


def replay_options(spec: Spec) -> dict[str, str]:
    """The options for reading the dead letters of a pipeline like its topics."""
    assert spec.dead_letter_topic is not None, "the caller checks it"
    kept = {n: v for n, v in spec.source_options.items() if n.lower() not in _NOT_OF_LETTERS}
    return kept | {
        "kafka.bootstrap.servers": spec.sink_bootstrap,
        "kafka.isolation.level": "read_committed",
        "subscribe": spec.dead_letter_topic,
        "startingOffsets": "earliest",
    }


def delete_replayed(spec: Spec, read: Mapping[TopicPartition, int]) -> None:
    """Delete the dead letters before these offsets, which were read again. Raises RequestRefused, Unreachable."""
    options = write_options(spec.write_to(spec.name, spec.name), Reads.BATCH).reads
    with read_client(RealBlockingWorld(), options) as brokers:
        brokers.topics([p.topic for p in read])
        starts = brokers.offsets(dict.fromkeys(read, EARLIEST))
        for partition, offset in sorted(read.items()):
            if offset > starts[partition]:
                _delete(brokers, partition, offset)


def _delete(brokers: ReadClient, partition: TopicPartition, offset: int) -> None:
    """Delete the records of one partition before the offset."""
    backoff = brokers.backoff(brokers.options.api_timeout_s)
    what = f"deleting dead letters of {partition} before offset {offset}"
    brokers.client.run(retried(what, lambda: _attempt(brokers, partition, offset), backoff))


def _attempt(brokers: ReadClient, partition: TopicPartition, offset: int) -> Steps[None]:
    """Ask the partition's leader once."""
    address = yield from brokers.cluster.leader(partition)
    message = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(partition.topic, [DeleteRecordsPartition(partition.partition, offset)])],
        timeout_ms=round(brokers.options.request_timeout_s * 1000),
    )
    answer = yield Ask(address, Request(ApiKey.DELETE_RECORDS, message))
    code = answer.topics[0].partitions[0].error_code
    if code:
        brokers.cluster.forget_leader(partition)
        raise RetriableError(retriable_or_raise(partition, code))
