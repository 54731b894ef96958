"""How a read handles options `kafka.NAME` with the configs of Kafka's clients: applied, without effect, or refused.

Those obeyed are in `option_table`. Source: ConsumerConfig.java, ProducerConfig.java, SslConfigs.java, SaslConfigs.java.
"""

from typing import Final

_NO_GROUP: Final = "the source reads without joining a consumer group"
_BATCHES: Final = "the source hands on whole batches of records, it does not poll"
_SYSTEM: Final = "the operating system sizes the buffers of sockets"
_RETRIES: Final = "kafka.retry.backoff.ms governs all retries, also of connections"
_METRICS: Final = "the source has no metrics of Java clients"
_WRITING: Final = "it is for writing"
_LEADER: Final = "the source reads from partition leaders"
_METADATA: Final = "metadata are requested for each plan, and again when a leader moves"

NO_EFFECT: Final = {
    "groupIdPrefix": _NO_GROUP,
    "fetchOffset.numRetries": "kafka.default.api.timeout.ms limits the tries to get offsets",
    "fetchOffset.retryIntervalMs": _RETRIES,
    "kafka.group.id": _NO_GROUP,
    "kafka.group.instance.id": _NO_GROUP,
    "kafka.group.protocol": _NO_GROUP,
    "kafka.group.remote.assignor": _NO_GROUP,
    "kafka.session.timeout.ms": _NO_GROUP,
    "kafka.heartbeat.interval.ms": _NO_GROUP,
    "kafka.rebalance.timeout.ms": _NO_GROUP,
    "kafka.max.poll.interval.ms": _NO_GROUP,
    "kafka.partition.assignment.strategy": _NO_GROUP,
    "kafka.internal.leave.group.on.close": _NO_GROUP,
    "kafka.internal.throw.on.fetch.stable.offset.unsupported": _NO_GROUP,
    "kafka.auto.commit.interval.ms": _NO_GROUP,
    "kafka.max.poll.records": _BATCHES,
    "kafka.check.crcs": "the checksum of every batch is verified",
    "kafka.client.rack": _LEADER,
    "kafka.client.dns.lookup": "every address of a name is tried",
    "kafka.allow.auto.create.topics": "a read never creates a topic",
    "kafka.exclude.internal.topics": "subscribePattern never takes internal topics; subscribe and assign may name them",
    "kafka.metadata.max.age.ms": _METADATA,
    "kafka.metadata.recovery.strategy": "where no known broker answers, the bootstrap servers are asked again",
    "kafka.metadata.recovery.rebootstrap.trigger.ms": "where no known broker answers, the bootstrap servers are asked",
    "kafka.connections.max.idle.ms": "a worker closes connections that were idle for a minute",
    "kafka.reconnect.backoff.ms": _RETRIES,
    "kafka.reconnect.backoff.max.ms": _RETRIES,
    "kafka.socket.connection.setup.timeout.max.ms": _RETRIES,
    "kafka.send.buffer.bytes": _SYSTEM,
    "kafka.receive.buffer.bytes": _SYSTEM,
    "kafka.metric.reporters": _METRICS,
    "kafka.metrics.num.samples": _METRICS,
    "kafka.metrics.recording.level": _METRICS,
    "kafka.metrics.sample.window.ms": _METRICS,
    "kafka.auto.include.jmx.reporter": _METRICS,
    "kafka.enable.metrics.push": _METRICS,
    "kafka.acks": _WRITING,
    "kafka.batch.size": _WRITING,
    "kafka.buffer.memory": _WRITING,
    "kafka.compression.type": _WRITING,
    "kafka.compression.gzip.level": _WRITING,
    "kafka.compression.lz4.level": _WRITING,
    "kafka.compression.zstd.level": _WRITING,
    "kafka.delivery.timeout.ms": _WRITING,
    "kafka.enable.idempotence": _WRITING,
    "kafka.linger.ms": _WRITING,
    "kafka.max.block.ms": _WRITING,
    "kafka.max.in.flight.requests.per.connection": _WRITING,
    "kafka.max.request.size": _WRITING,
    "kafka.metadata.max.idle.ms": _WRITING,
    "kafka.partitioner.class": _WRITING,
    "kafka.partitioner.adaptive.partitioning.enable": _WRITING,
    "kafka.partitioner.availability.timeout.ms": _WRITING,
    "kafka.partitioner.ignore.keys": _WRITING,
    "kafka.retries": _WRITING,
    "kafka.transaction.timeout.ms": _WRITING,
    "kafka.transactional.id": _WRITING,
    "topic": _WRITING,
    "delivery": _WRITING,
    "writeId": _WRITING,
    "writeBatch": _WRITING,
    "commitTopic": _WRITING,
}  # fmt: skip
"""Accepted, because a job may set them for other sources; a warning says once why they change nothing here."""

_BYTES: Final = "the source returns key and value as bytes: remove it, and set valueFormat or cast the column"
_NO_JAVA: Final = "the source runs no code of Java clients: remove it"
_PLAINTEXT: Final = "klamm connects only to PLAINTEXT listeners: remove it, and give the port of such a listener"

REFUSED: Final = {
    "kafka.auto.offset.reset": "startingOffsets says where to begin: remove it, and set startingOffsets",
    "kafka.enable.auto.commit": "Spark's checkpoint keeps the offsets: remove it; klamm.spark.watch commits them to a "
    "group",
    "kafka.key.deserializer": _BYTES,
    "kafka.value.deserializer": _BYTES,
    "kafka.key.serializer": _BYTES,
    "kafka.value.serializer": _BYTES,
    "kafka.interceptor.classes": _NO_JAVA,
    "kafka.config.providers": _NO_JAVA,
    "kafka.security.providers": _NO_JAVA,
    "kafka.sasl.*": _PLAINTEXT,
    "kafka.ssl.*": _PLAINTEXT,
}
"""Setting them would change what is read or who may read it: the read fails. `.*` stands for all names that follow."""
