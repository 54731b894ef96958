"""One sentence on the meaning of each broker config; defaults of topic configs have the topic config's sentence.

Keys that klamm does not use have no sentence: Kafka's documentation describes them.
"""

from typing import Final

from klamm.config.topic_config import TOPIC_KEYS

_TABLE: Final = """
advertised.listeners: The addresses that clients and other brokers connect to; where not set, those of `listeners`.
alter.config.policy.class.name: A Python class, module:Class, that may refuse changes of topic and broker configs.
auto.create.topics.enable: Whether a topic is created when a client requests metadata of one that does not exist.
auto.leader.rebalance.enable: Whether the controller moves leaders back to their preferred replicas automatically.
broker.id: The broker's number; -1 lets ZooKeeper choose one above `reserved.broker.max.id`.
broker.id.generation.enable: Whether a broker without an id gets one from ZooKeeper.
broker.rack: The rack of the broker; replicas of a partition are spread over racks.
connections.max.idle.ms: An idle connection is closed after this time.
control.plane.listener.name: The listener that only the controller uses; else it shares the brokers' listener.
controlled.shutdown.enable: Whether a broker that stops asks the controller to move its leaders away first.
controlled.shutdown.max.retries: How often it asks again when the controller does not answer, or some leaders remain.
controlled.shutdown.retry.backoff.ms: How long it waits before it asks again.
controller.socket.timeout.ms: How long the controller waits for a broker's answer before it connects again.
create.topic.policy.class.name: A Python class, module:Class, that may refuse the creation of topics.
default.replication.factor: Replicas of each partition of a topic that is created without a replication factor.
delegation.token.expiry.check.interval.ms: How often the controller removes expired delegation tokens.
delete.topic.enable: Whether topics can be deleted at all.
fetch.max.bytes: The maximum bytes of one Fetch response.
follower.replication.throttled.rate: Bytes per second that throttled followers on this broker may fetch together.
group.initial.rebalance.delay.ms: How long an empty group waits for more members before its first rebalance.
group.max.session.timeout.ms: The longest session timeout that a member of a group may ask for.
group.max.size: How many members a group may have.
group.min.session.timeout.ms: The shortest session timeout that a member of a group may ask for.
inter.broker.listener.name: The listener that brokers use among themselves.
inter.broker.protocol.version: The newest protocol that brokers may use among themselves.
klamm.controller.only.brokers: Brokers that get replicas only by explicit assignment: they only serve as controller.
klamm.controller.standby: Whether a node that is not controller keeps topics and partitions in memory for its election.
klamm.crash.guard: Whether a guard process reports a crash of the node to ZooKeeper at once.
klamm.delete.topic.dead.broker.wait.ms: How long a deletion waits for brokers that are away before it ends without them.
klamm.fetch.check.crcs: Whether checksums of records in closed segments are verified before the records are sent.
klamm.journal.topic: The topic that a node also writes its journal to; empty for none.
klamm.log.scrub.bytes.per.second: How much of closed segments is read per second to look for damage; 0 for none.
klamm.log.scrub.interval.ms: Time from the start of one search for damage in all closed segments to the next.
klamm.max.request.elements: Maximum elements of all arrays of a request; a larger request closes its connection.
klamm.metrics.host: The address at which a node serves its metrics.
klamm.metrics.port: The port at which a node serves its metrics to Prometheus; 0 for none.
klamm.queued.max.response.bytes: Memory for responses that clients do not read; beyond it the slowest are closed.
klamm.replace.restarted.replicas: Whether a new controller replaces in-sync replicas whose broker restarted unnoticed.
leader.imbalance.check.interval.seconds: How often the controller checks for leaders to move back.
leader.imbalance.per.broker.percentage: Share of the partitions that prefer a broker which others may lead.
leader.replication.throttled.rate: Bytes per second that throttled leaders on this broker may send together.
listener.security.protocol.map: Which security protocol each listener speaks.
listeners: The addresses at which the broker listens, NAME://HOST:PORT each.
log.dir: The directory for logs where `log.dirs` names none.
log.dirs: The directories that hold partitions, with commas in between.
log.cleaner.backoff.ms: How long the log cleaner pauses when no log is dirty enough.
log.cleaner.dedupe.buffer.size: Memory for the keys of a compaction, for all cleaner threads together.
log.cleaner.enable: Whether compacted topics are compacted on this broker.
log.cleaner.io.buffer.load.factor: How full the memory for the keys of a compaction may become.
log.cleaner.io.buffer.size: A quarter of the bytes that a compaction reads at a time, for all cleaner threads together.
log.cleaner.io.max.bytes.per.second: How much all cleaner threads together read and write at most.
log.cleaner.threads: Logs that are compacted at the same time, each in a process of its own.
log.flush.offset.checkpoint.interval.ms: How often recovery points are written to their checkpoint file.
log.flush.scheduler.interval.ms: How often logs are checked for whether they must be synced to the device.
log.flush.start.offset.checkpoint.interval.ms: How often log start offsets are written to their checkpoint file.
log.initial.task.delay.ms: How long after the start of a node its work on logs begins.
log.retention.check.interval.ms: How often logs are checked for old segments.
max.connections: How many connections a broker accepts at once.
max.connections.per.ip: How many connections a broker accepts from one address.
max.connections.per.ip.overrides: Another limit for some addresses, ADDRESS:COUNT each.
max.incremental.fetch.session.cache.slots: How many fetch sessions a broker remembers.
num.network.threads: Accepted without effect: klamm reads and writes all connections in one event loop.
num.partitions: Partitions of a topic that is created without a number of partitions.
num.recovery.threads.per.data.dir: How many logs of a directory are loaded at the same time.
num.replica.fetchers: Connections with which a broker fetches from each other broker.
offset.metadata.max.bytes: The longest text that a consumer may commit with an offset.
offsets.commit.required.acks: Acknowledgements that a commit waits for; -1 for all in-sync replicas.
offsets.commit.timeout.ms: How long a commit waits until the replicas have it.
offsets.load.buffer.size: Bytes of __consumer_offsets that a new coordinator reads at a time.
offsets.retention.check.interval.ms: How often groups are checked for expired offsets.
offsets.retention.minutes: How long offsets are kept once no member of the group reads their topic.
offsets.topic.compression.codec: How a coordinator compresses: 0 not at all, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
offsets.topic.num.partitions: Partitions of the topic that keeps the groups' offsets.
offsets.topic.replication.factor: Replicas of the topic that keeps the groups' offsets.
offsets.topic.segment.bytes: The segment size of the topic that keeps the groups' offsets.
producer.id.expiration.check.interval.ms: How often idle producers are checked for expiry.
producer.id.expiration.ms: How long an idle producer's last batches are remembered, against duplicates.
queued.max.request.bytes: Memory for requests in progress; above it no further request is read; -1 for no limit.
replica.fetch.backoff.ms: How long a follower waits after a fetch that failed.
replica.fetch.max.bytes: Bytes of one partition that a follower requests at a time.
replica.fetch.min.bytes: Bytes that a leader waits for before it answers a follower.
replica.fetch.response.max.bytes: The maximum bytes of one response to a follower.
replica.fetch.wait.max.ms: How long a leader waits for new records before it answers a follower.
replica.high.watermark.checkpoint.interval.ms: How often high watermarks are written to their checkpoint file.
replica.lag.time.max.ms: A follower that has not caught up with its leader for this time leaves the ISR.
replica.selector.class: Whether consumers with client.rack read from in-sync followers in their rack.
replica.socket.timeout.ms: How long a follower waits for its leader's answer.
replication.quota.window.num: How many windows the rate of throttled replication is averaged over.
replication.quota.window.size.seconds: How long each of these windows is.
request.timeout.ms: How long a broker waits for the response of another broker.
reserved.broker.max.id: The highest broker.id that may be configured where ids are also generated.
socket.connection.setup.timeout.ms: The timeout for connecting to another broker.
socket.listen.backlog.size: Connections that may wait to be accepted.
socket.receive.buffer.bytes: Size of a socket's receive buffer; -1 lets the system decide.
socket.request.max.bytes: The largest request that a broker reads.
socket.send.buffer.bytes: Size of a socket's send buffer; -1 lets the system decide.
transaction.abort.timed.out.transaction.cleanup.interval.ms: How often transactions that are open too long are aborted.
transaction.max.timeout.ms: The longest timeout that a transactional producer may ask for.
transaction.partition.verification.enable: Whether leaders verify transactions with their coordinator.
transaction.remove.expired.transaction.cleanup.interval.ms: How often expired transactional ids are removed.
transaction.state.log.load.buffer.size: Bytes of transaction state that are read at once while it is loaded.
transaction.state.log.min.isr: In-sync replicas that a change of a transaction's state needs.
transaction.state.log.num.partitions: Partitions of the topic that keeps the state of transactions.
transaction.state.log.replication.factor: Replicas of the topic that keeps the state of transactions.
transaction.state.log.segment.bytes: Segment size of the topic that keeps the state of transactions.
transactional.id.expiration.ms: How long an idle transactional id is remembered.
zookeeper.connect: The ensemble, HOST:PORT with commas in between, and a chroot after the last.
zookeeper.connection.timeout.ms: How long a node waits for ZooKeeper when it starts.
zookeeper.max.in.flight.requests: Maximum number of unanswered requests to ZooKeeper.
zookeeper.session.timeout.ms: How long ZooKeeper waits for a silent node before its session expires.
"""

BROKER_MEANINGS: Final[dict[str, str]] = {
    **{s.name: key.doc for key in reversed(TOPIC_KEYS.values()) for s in reversed(key.synonyms)},
    **dict(line.split(": ", 1) for line in _TABLE.strip().splitlines()),
}
