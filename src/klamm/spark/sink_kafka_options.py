"""How a write handles options that it does not obey: those of Kafka's clients, and those for reading.

Those obeyed are in `sink_options`. Source: ProducerConfig.java, ConsumerConfig.java, KafkaSourceProvider.scala.
"""

from typing import Final

from klamm.spark.kafka_options import NO_EFFECT, REFUSED

_READING: Final = "it is for reading"
_FILLED: Final = "batches are filled from the rows of the task, nothing waits"
_DELIVERY: Final = "kafka.delivery.timeout.ms limits the retries"
_STICKY: Final = "rows without a key fill one batch after the other, whatever the speed of the brokers"
_SHARED: Final = frozenset(
    (
        "kafka.client.dns.lookup", "kafka.metadata.recovery.strategy",
        "kafka.metadata.recovery.rebootstrap.trigger.ms", "kafka.connections.max.idle.ms",
        "kafka.reconnect.backoff.ms", "kafka.reconnect.backoff.max.ms",
        "kafka.socket.connection.setup.timeout.max.ms", "kafka.send.buffer.bytes", "kafka.receive.buffer.bytes",
    )
)  # fmt: skip
"""Without effect for the same reason as in a read."""
_FOR_READS: Final = (
    "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp", "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestampStrategy",
    "failOnDataLoss", "onDataLoss", "minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger",
    "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "valueFormat", "valueSchema", "onDecodeError",
    "includeRawValue", "schemaRegistry", "schemaRegistryAuth",
    "kafkaConsumer.pollTimeoutMs", "groupIdPrefix", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "kafka.isolation.level", "kafka.max.partition.fetch.bytes", "kafka.fetch.max.bytes", "kafka.fetch.min.bytes",
    "kafka.fetch.max.wait.ms", "kafka.default.api.timeout.ms", "kafka.group.id", "kafka.group.instance.id",
    "kafka.group.protocol", "kafka.group.remote.assignor", "kafka.session.timeout.ms", "kafka.heartbeat.interval.ms",
    "kafka.rebalance.timeout.ms", "kafka.max.poll.interval.ms", "kafka.partition.assignment.strategy",
    "kafka.internal.leave.group.on.close", "kafka.internal.throw.on.fetch.stable.offset.unsupported",
    "kafka.auto.commit.interval.ms", "kafka.auto.offset.reset", "kafka.enable.auto.commit", "kafka.max.poll.records",
    "kafka.check.crcs", "kafka.client.rack", "kafka.exclude.internal.topics", "kafka.key.deserializer",
    "kafka.value.deserializer",
)  # fmt: skip
_METRICS: Final = "the sink has no metrics of Java clients"

NOT_FOR_WRITES: Final = {
    "includeHeaders": "a write has headers where its rows have the column headers",
    "kafka.linger.ms": _FILLED,
    "kafka.retries": _DELIVERY,
    "kafka.max.in.flight.requests.per.connection": "one request is in flight at each leader, so that order stays",
    "kafka.partitioner.adaptive.partitioning.enable": _STICKY,
    "kafka.partitioner.availability.timeout.ms": _STICKY,
    "kafka.metadata.max.age.ms": "metadata are requested for each task, and again when a leader moves",
    "kafka.metadata.max.idle.ms": "metadata are requested for each task",
    "kafka.allow.auto.create.topics": "a write never creates a topic but its commitTopic",
    **{name: NO_EFFECT[name] for name in NO_EFFECT if name in _SHARED},
    **{name: _METRICS for name, why in NO_EFFECT.items() if why == NO_EFFECT["kafka.metric.reporters"]},
    **dict.fromkeys(_FOR_READS, _READING),
}
"""Accepted, because a job may set them for other formats or for its read."""

_BYTES: Final = "the sink writes key and value as they are: remove it, and cast the columns to BINARY or STRING"
_NO_JAVA: Final = "the sink runs no code of Java clients: remove it"

WRITES_REFUSE: Final = {
    "kafka.transactional.id": "the sink makes the transactional ids of its tasks: remove it, and set delivery to "
    "exactly-once",
    "kafka.partitioner.class": f"{_NO_JAVA}; a column partition says where a row goes",
    "kafka.key.serializer": _BYTES,
    "kafka.value.serializer": _BYTES,
    "kafka.interceptor.classes": _NO_JAVA,
    "kafka.config.providers": _NO_JAVA,
    "kafka.security.providers": _NO_JAVA,
    "kafka.sasl.*": REFUSED["kafka.sasl.*"],
    "kafka.ssl.*": REFUSED["kafka.ssl.*"],
}
"""Setting them would change what is written, or who may write it: the write fails."""
