"""Every part of a node, built and started in one order. Source: KafkaServer.startup (3.9).

Each step needs what the one before it learned: the session tells who this node is; its ports and logs tell what it
registers; then comes everything else. A new part is one line: `lifecycle.add(name, part)` where it is built. Parts
close in the reverse order, so the ports close first, then the replicas, the logs, the controller and the session.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import TypeVar

from klamm.broker.config_changes import ConfigChanges, read_broker_configs
from klamm.broker.config_follower import ConfigFollower
from klamm.broker.context import NodeContext
from klamm.broker.controller_channel import (
    ControllerChannel,
    is_not_controller,
    is_not_controller_for_a_partition,
    is_not_controller_for_any_topic,
)
from klamm.broker.controller_handover import ControllerHandover
from klamm.broker.coordinators import (
    build_decision_journal,
    build_groups,
    build_leadership_check,
    build_transactions,
)
from klamm.broker.crash_guard import CrashGuard
from klamm.broker.dispatch import Dispatcher
from klamm.broker.features import Features
from klamm.broker.handlers.fetch import Fetch
from klamm.broker.identity import check_log_directories, choose_broker_id
from klamm.broker.isr_znodes import IsrZnodes
from klamm.broker.journal_topic import PRODUCE_TIMEOUT_S, JournalTopic
from klamm.broker.lifecycle import Lifecycle, NodeStatus, Step
from klamm.broker.listeners import BoundListeners, cannot_bind
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.metrics import NodeMetrics
from klamm.broker.metrics_endpoint import MetricsEndpoint
from klamm.broker.parts import Parts
from klamm.broker.producer_ids import AllocateBlock, ProducerIds, allocate_from_controller, allocate_from_zookeeper
from klamm.broker.registration import Registration
from klamm.broker.registration_watch import RegistrationWatch
from klamm.broker.replica_logs import ReplicaLogs
from klamm.broker.replication_throttles import ReplicationThrottles
from klamm.broker.routes import routes
from klamm.broker.settings import (
    controller_settings,
    replication_settings,
)
from klamm.broker.stale_topics import StaleTopics
from klamm.broker.storage import Storage, build_storage, logs_closer
from klamm.broker.znode_follower import OnUnexpectedError, ZnodeFollower, log_unexpected_error
from klamm.broker.zookeeper_sessions import ZooKeeperSessions
from klamm.client.asynchronous import AsyncClient, AsyncSettings
from klamm.client.connection import Connection
from klamm.config.dynamic_config import DynamicConfig
from klamm.config.node_config import RACK_AWARE_SELECTOR, NodeConfig
from klamm.controller.controller import Controller
from klamm.controller.decisions.standby import StandbyMode, keeps_mirror
from klamm.controller.settings import FIRST_WITH_ALTER_PARTITION, FIRST_WITH_PRODUCER_IDS, parse_ibp
from klamm.controller.standby import StandbyPorts
from klamm.log.registry import DirectoryFailure
from klamm.model.ids import BrokerId
from klamm.model.topic_ids import new_topic_id
from klamm.replication.alter_partition import SendAlterPartition
from klamm.replication.leadership import LeadershipChange
from klamm.replication.record_repair import RecordRepair
from klamm.replication.replica_manager import ReplicaManager
from klamm.runtime.world import World
from klamm.telemetry.journal import Journal
from klamm.telemetry.journal_files import JournalFiles
from klamm.telemetry.logs import LogLevels
from klamm.wire.api import ApiKey
from klamm.wire.messages import AlterPartitionRequest, AlterPartitionResponse


async def assemble(
    world: World, config: NodeConfig, log_levels: LogLevels, status: NodeStatus, lifecycle: Lifecycle
) -> Parts:
    """Build and start every part; closing `lifecycle` ends them. Raises KlammError where the node cannot run."""
    guard = lifecycle.add("crash guard", CrashGuard(world, config))
    sessions = lifecycle.add("ZooKeeper session", ZooKeeperSessions(world, config, guard))
    await lifecycle.start()
    context = await _read_node_context(world, config, log_levels, status, sessions)
    lifecycle.add("process record", Step(lambda: guard.begin_record(context.store(), context.broker_id)))
    storage = build_storage(context, lifecycle)
    await lifecycle.start()
    parts = build_parts(context, storage, lifecycle)
    await lifecycle.start()
    return parts


async def _read_node_context(
    world: World, config: NodeConfig, log_levels: LogLevels, status: NodeStatus, sessions: ZooKeeperSessions
) -> NodeContext:
    """Determine cluster id and broker id from ZooKeeper and the log directories."""
    store = sessions.store
    await store.create_top_level_paths()
    cluster_id = await store.read_or_create_cluster_id(new_topic_id(world.randomness.bytes))
    check_log_directories(world.disk, config)
    broker_id = await choose_broker_id(world.disk, config, cluster_id, store)
    first_change = await store.configs.next_change_number()
    dynamic = DynamicConfig(config)
    dynamic.apply(*await read_broker_configs(store.configs, broker_id))
    return NodeContext(
        world, dynamic.current, dynamic, broker_id, cluster_id, sessions, status, log_levels, first_change
    )


def build_parts(context: NodeContext, storage: Storage, lifecycle: Lifecycle) -> Parts:
    """Create all parts that run while the broker is registered, without starting them."""
    config, logs, throttles = context.config, storage.logs, storage.throttles
    journal = _build_journal(context, storage, lifecycle)
    on_error = _journal_error_reporter(journal)
    registration = lifecycle.add("registration", Registration(context, storage.listeners))
    cache = MetadataCache(config.inter_broker_listener)
    lifecycle.add("metadata cache", Step(lambda: _fill_metadata_cache(context, cache)))
    features = _add_follower(context, lifecycle, "features", Features(context.store, on_error))
    controller = _build_controller(context, journal, registration, features, cache, lifecycle)
    lifecycle.add("log housekeeping", Step(logs.start, logs_closer(context, logs)))
    cleaner = lifecycle.add("log cleaner", storage.cleaner)
    channel = _build_controller_channel(context, cache, throttles, on_error, lifecycle)
    replica_logs = ReplicaLogs(logs, context.store, throttles.topic_changed)
    replicas = _build_replicas(context, storage, cache, channel, replica_logs, lifecycle)
    repair = _build_repair(context, storage, cache, replicas, lifecycle)
    decisions = build_decision_journal(journal, lifecycle)
    check = build_leadership_check(context, replicas, lifecycle)
    groups = build_groups(context, replicas, check, decisions, lifecycle)
    producer_ids = ProducerIds(_allocate_producer_ids(context, channel))
    lifecycle.add("producer ids", Step(close=producer_ids.close))
    transactions, verification = build_transactions(context, cache, replicas, check, producer_ids, decisions, lifecycle)

    def on_leadership_change(change: LeadershipChange) -> None:
        """Tell the group and the transaction coordinator which partitions this broker began or ceased to lead."""
        groups.on_leadership_change(change)
        transactions.on_leadership_change(change)

    replicas.on_leadership_change = on_leadership_change
    changes = _build_followers(context, storage, controller, registration, replica_logs, replicas, on_error, lifecycle)
    parts = Parts(
        context=context,
        logs=logs,
        cleaner=cleaner,
        scrubber=storage.scrubber,
        repair=repair,
        throttles=throttles,
        cache=cache,
        channel=channel,
        journal=journal,
        controller=controller,
        features=features,
        replicas=replicas,
        fetch=Fetch(
            cache,
            replicas,
            config.fetch_max_bytes,
            check.confirm,
            is_rack_aware=config.replica_selector_class == RACK_AWARE_SELECTOR,
        ),
        producer_ids=producer_ids,
        groups=groups,
        transactions=transactions,
        verification=verification,
        config_changes=changes,
        journal_topic=_build_journal_topic(context, cache, channel),
    )
    _build_services(parts, storage.listeners, lifecycle)
    return parts


def _build_journal(context: NodeContext, storage: Storage, lifecycle: Lifecycle) -> Journal:
    """Create the journal: plain files beside the partition directories, which Apache Kafka would also accept there."""
    logs = storage.logs
    first, *others = logs.live_directories
    files = JournalFiles(context.world.disk, first, context.broker_id, others=others)
    lifecycle.add("journal", Step(lambda: context.world.disk.in_thread(files.reserve_incarnation)))

    def move_journal(failure: DirectoryFailure) -> None:
        """Continue the journal in the first live log directory if its own directory failed."""
        if logs.live_directories:
            files.move_from(failure.directory, logs.live_directories[0])

    storage.log_dir_failures.add_listener(move_journal)
    return Journal(files, context.broker_id, context.world.clock)


def _journal_error_reporter(journal: Journal) -> OnUnexpectedError:
    """A callback that logs an unexpected error and writes it to the journal."""

    def report(what: str, error: Exception) -> None:
        """Log an unexpected error, and write it to the journal at once; `what` names the work that failed."""
        log_unexpected_error(what, error)
        journal.line(journal.event("UnexpectedError"), "failed", what=what, why=repr(error))
        journal.flush()

    return report


async def _fill_metadata_cache(context: NodeContext, cache: MetadataCache) -> None:
    """Put brokers, controller and topic names from ZooKeeper into the cache, until the first UpdateMetadata arrives."""
    store = context.store()
    cache.expect_topics(await store.list_topics())
    brokers = (await store.read_brokers()).brokers
    controller = await store.read_controller()
    cache.fill_brokers((r.broker for r in brokers.values()), controller.broker if controller else None)


def is_standby(config: NodeConfig, broker: BrokerId, live: Collection[BrokerId]) -> bool:
    """Whether a node with this config and id keeps a mirror while these brokers live."""
    mode = StandbyMode(config.klamm_controller_standby)
    return keeps_mirror(mode, broker, live, config.klamm_controller_only_brokers)


def _build_controller(
    context: NodeContext,
    journal: Journal,
    registration: Registration,
    features: Features,
    cache: MetadataCache,
    lifecycle: Lifecycle,
) -> Controller:
    """Create the node's controller and add it to the lifecycle."""
    config = context.config
    controller = Controller(
        context.world,
        controller_settings(context.config, context.broker_id),
        partial(Connection.open, context.world),
        journal,
        registration.register_again,
        wait_for_features=features.wait_for_epoch,
        make_slices=context.world.make_slices,
        standby=None
        if StandbyMode(config.klamm_controller_standby) is StandbyMode.FALSE
        else StandbyPorts(
            context.sessions.open_mirror_session, lambda: is_standby(config, context.broker_id, cache.brokers)
        ),
    )

    def start() -> None:
        """Start the controller: it takes part in the election and follows the ZooKeeper sessions."""
        context.sessions.add_listener(controller)
        controller.start(context.store())

    lifecycle.add("controller", Step(start, controller.stop))
    return controller


def _build_controller_channel(
    context: NodeContext,
    cache: MetadataCache,
    throttles: ReplicationThrottles,
    on_error: OnUnexpectedError,
    lifecycle: Lifecycle,
) -> ControllerChannel:
    """Build the connection to the active controller.

    New metadata makes it check for another controller, and starts the check for stale topics.
    """
    config = context.config
    channel = ControllerChannel(
        context.world,
        cache,
        context.broker_id,
        config.socket_connection_setup_timeout_ms / 1000,
        config.request_timeout_ms / 1000,
    )
    stale_topics = StaleTopics(cache, context.store, throttles.topic_deleted, on_error)

    def on_metadata_update() -> None:
        """After new metadata, check whether another broker is controller, and which topics here are stale."""
        channel.controller_may_have_changed()
        stale_topics.metadata_updated()

    cache.on_update = on_metadata_update
    lifecycle.add("controller channel", Step(close=channel.close))
    lifecycle.add("stale topics", Step(close=stale_topics.close))
    return channel


def _build_replicas(
    context: NodeContext,
    storage: Storage,
    cache: MetadataCache,
    channel: ControllerChannel,
    replica_logs: ReplicaLogs,
    lifecycle: Lifecycle,
) -> ReplicaManager:
    """Create the replica manager; the protocol version decides whether the controller or this broker writes ISRs."""
    config = context.config
    send_alter_partition: SendAlterPartition = _alter_partition_sender(channel)
    isr_znodes = None
    if parse_ibp(config.inter_broker_protocol_version) < FIRST_WITH_ALTER_PARTITION:
        isr_znodes = IsrZnodes(context.store, context.broker_id)
        send_alter_partition = isr_znodes.send
    timeout_s = config.socket_connection_setup_timeout_ms / 1000
    replicas = ReplicaManager(
        context.world,
        context.broker_id,
        context.broker_epoch,
        replica_logs,
        cache,
        send_alter_partition,
        lambda host, port, client_id: Connection.open(context.world, host, port, client_id, timeout_s),
        replication_settings(config),
        quotas=storage.quotas,
        future_logs=storage.logs.moves,
        on_corrupt=storage.scrubber.check_soon,
    )
    replicas.check_crcs(is_on=config.klamm_fetch_check_crcs)
    lifecycle.add("replicas", replicas)
    if isr_znodes is not None:
        lifecycle.add("ISR changes", isr_znodes)
    storage.log_dir_failures.add_listener(lambda failure: replicas.set_offline(failure.partitions))
    return replicas


def _build_repair(
    context: NodeContext, storage: Storage, cache: MetadataCache, replicas: ReplicaManager, lifecycle: Lifecycle
) -> RecordRepair:
    """Create the search for damaged records, and the part that replaces them with the records of other replicas."""
    timeout_s = context.config.socket_connection_setup_timeout_ms / 1000
    repair = RecordRepair(
        context.world,
        context.broker_id,
        replicas.partition,
        cache,
        lambda host, port, client_id: Connection.open(context.world, host, port, client_id, timeout_s),
        context.config.replica_socket_timeout_ms / 1000,
    )
    storage.scrubber.on_damage = repair.on_damage
    lifecycle.add("record repair", repair)
    lifecycle.add("log scrubber", storage.scrubber)
    return repair


def _alter_partition_sender(channel: ControllerChannel) -> SendAlterPartition:
    """A function that sends AlterPartition to the active controller through `channel`."""

    async def send(build: Callable[[int], AlterPartitionRequest], newest: int) -> AlterPartitionResponse:
        """Send an AlterPartition request to the controller and return its response.

        `build` makes the request for a version, `newest` is the highest that may be sent.
        """
        answer: AlterPartitionResponse = await channel.ask(
            ApiKey.ALTER_PARTITION, newest, build, is_not_controller, is_not_controller_for_a_partition
        )
        return answer

    return send


def _allocate_producer_ids(context: NodeContext, channel: ControllerChannel) -> AllocateBlock:
    """Return the function that allocates producer id blocks.

    It asks the controller, or in old protocol versions ZooKeeper.
    """
    if parse_ibp(context.config.inter_broker_protocol_version) < FIRST_WITH_PRODUCER_IDS:
        return lambda: allocate_from_zookeeper(context.store, context.broker_id)
    return lambda: allocate_from_controller(channel, context.broker_id, context.broker_epoch())


def _build_followers(
    context: NodeContext,
    storage: Storage,
    controller: Controller,
    registration: Registration,
    replica_logs: ReplicaLogs,
    replicas: ReplicaManager,
    on_error: OnUnexpectedError,
    lifecycle: Lifecycle,
) -> ConfigChanges:
    """Create the parts that watch ZooKeeper: configs, handover requests, this broker's registration."""
    applier = ConfigFollower(
        context.dynamic,
        storage.logs,
        storage.server,
        controller,
        context.store,
        registration.advertise,
        storage.throttles,
        storage.cleaner,
        storage.scrubber,
        replicas,
        replica_logs.topics_changed,
    )
    changes = ConfigChanges(
        context.store,
        context.broker_id,
        applier,
        context.world.clock.now_ms,
        on_error,
        context.first_config_change,
    )
    handover = ControllerHandover(context.store, context.broker_id, controller, on_error)
    watch = RegistrationWatch(context.store, context.broker_id, registration.register_again, on_error)
    registration.on_registered = watch.on_registered
    _add_follower(context, lifecycle, "config changes", changes)
    _add_follower(context, lifecycle, "controller handover", handover)
    _add_follower(context, lifecycle, "registration watch", watch)
    return changes


FollowerT = TypeVar("FollowerT", bound=ZnodeFollower)


def _add_follower(context: NodeContext, lifecycle: Lifecycle, name: str, follower: FollowerT) -> FollowerT:
    """Register a part that follows a znode: it starts with the node and gets the events of the ZooKeeper sessions."""
    context.sessions.add_listener(follower)
    return lifecycle.add(name, follower)


def _build_journal_topic(context: NodeContext, cache: MetadataCache, channel: ControllerChannel) -> JournalTopic | None:
    """The part that publishes the journal to a topic; None where no topic is configured."""
    topic = context.config.klamm_journal_topic
    if not topic:
        return None
    return JournalTopic(
        context.world,
        context.config.log_directories[0],
        context.broker_id,
        topic,
        cache,
        AsyncClient(context.world, (), AsyncSettings(f"klamm-journal-{context.broker_id}", PRODUCE_TIMEOUT_S)),
        lambda api, newest, build: channel.ask(api, newest, build, is_not_controller_for_any_topic),
    )


def _build_services(parts: Parts, listeners: BoundListeners, lifecycle: Lifecycle) -> None:
    """Add the parts that clients can reach; ports open last and close first."""
    context = parts.context
    dispatcher = Dispatcher(routes(parts), context.world.request_slices, context.config.klamm_max_request_elements)
    endpoint = MetricsEndpoint(context.world.network, NodeMetrics(parts, dispatcher).render_page)
    lifecycle.add("metrics endpoint", Step(lambda: _open_metrics_endpoint(endpoint, context.config), endpoint.close))
    lifecycle.add("request server", Step(lambda: listeners.open(dispatcher, dispatcher.may_overlap), listeners.close))
    if parts.journal_topic is not None:
        lifecycle.add("journal topic", parts.journal_topic)


async def _open_metrics_endpoint(endpoint: MetricsEndpoint, config: NodeConfig) -> None:
    """Open the metrics port. Raises CannotStart if it cannot be bound."""
    host, port = config.klamm_metrics_host, config.klamm_metrics_port
    if not port:
        return
    import klamm.telemetry.exposition  # noqa: F401 - the first page then does not hold the loop for it

    try:
        await endpoint.open(host, port)
    except OSError as error:
        raise cannot_bind(host, port, error, config.where("klamm.metrics.port")) from error
