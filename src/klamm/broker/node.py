"""One node: broker and controller in a process, from its first breath to its last. Source: KafkaServer.scala (3.9).

Order of the start: ZooKeeper, cluster id, ports bound, logs loaded, registered, controller, ports open. Order of the
stop: leaders handed over, ports closed, replicas, logs with their clean marker, controller, session.
"""

import asyncio
from typing import Any, Final

import structlog

from klamm.broker.broker_state import BrokerState
from klamm.broker.config_changes import ConfigChanges, read_broker_configs
from klamm.broker.config_follower import ConfigFollower
from klamm.broker.controlled_shutdown import ControlledShutdown
from klamm.broker.controller_channel import (
    ControllerChannel,
    says_not_controller,
    says_not_controller_anywhere,
    says_not_controller_of_any_topic,
)
from klamm.broker.controller_handover import ControllerHandover
from klamm.broker.dispatch import Dispatcher, Route
from klamm.broker.features import Features
from klamm.broker.handlers.fetch import Fetch
from klamm.broker.identity import check_log_directories, choose_broker_id
from klamm.broker.isr_znodes import IsrZnodes
from klamm.broker.journal_topic import JournalTopic
from klamm.broker.log_dir_failures import LogDirFailureNotifier
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.metrics import NodeMetrics
from klamm.broker.metrics_endpoint import MetricsEndpoint
from klamm.broker.pid_file import write_pid
from klamm.broker.producer_ids import ProducerIdBlock, ProducerIds
from klamm.broker.registration_watch import RegistrationWatch
from klamm.broker.replica_logs import ReplicaLogs
from klamm.broker.replication_throttles import ReplicationThrottles
from klamm.broker.routes import routes
from klamm.broker.settings import controller_settings, log_settings, replication_settings, server_limits
from klamm.broker.stale_topics import StaleTopics
from klamm.broker.start import CannotStart
from klamm.broker.znode_follower import log_unexpected_error
from klamm.broker.zookeeper_sessions import ZooKeeperSessions
from klamm.config.dynamic_config import DynamicConfig
from klamm.config.node_config import NodeConfig
from klamm.controller.controller import Controller
from klamm.controller.settings import (
    FIRST_WITH_ALTER_PARTITION,
    FIRST_WITH_FEATURES,
    FIRST_WITH_PRODUCER_IDS,
    parse_ibp,
)
from klamm.log.errors import BadLogDirectory
from klamm.log.manager import DirectoryFailure, LogManager
from klamm.model.brokers import Broker, Endpoint
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId
from klamm.model.topic_ids import new_topic_id
from klamm.net.client import Connection
from klamm.net.server import Server
from klamm.replication.quota import ReplicationQuotas
from klamm.replication.replica_manager import ReplicaManager
from klamm.runtime.world import World
from klamm.telemetry.journal import Journal
from klamm.telemetry.journal_files import JournalFiles
from klamm.telemetry.logs import LogLevels
from klamm.wire.api import ApiKey
from klamm.wire.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from klamm.zk.configs import ConfigStore
from klamm.zk.registrar import BrokerIdTaken, BrokerRegistrar
from klamm.zk.registrations import VERSION_WITH_FEATURES, VERSION_WITH_LISTENERS
from klamm.zk.store import Store
from klamm.zk.watches import WatchEvent

_REGISTRATION_GRACE_S: Final = 15.0
log = structlog.get_logger("node")


class Node:
    """`start`, then `stop`; or `abandon` where the start failed."""

    def __init__(self, world: World, config: NodeConfig, log_levels: LogLevels) -> None:
        self._world = world
        self._log_levels = log_levels
        self._config = config
        self._dynamic = DynamicConfig(config)
        self._sessions = ZooKeeperSessions(world, config, self._session_expired, self._session_renewed)
        self._notices = LogDirFailureNotifier(lambda: self._sessions.store)
        self._server = Server(world.network, server_limits(config), config.inter_broker_listener)
        self.broker_epoch = -1
        self.broker_id = BrokerId(-1)
        self.state = BrokerState.NOT_RUNNING
        self._logs: LogManager | None = None
        self._replicas: ReplicaManager | None = None
        self._controller: Controller | None = None
        self._channel: ControllerChannel | None = None
        self._forgotten: StaleTopics | None = None
        self._producer_ids: ProducerIds | None = None
        self._registrar: BrokerRegistrar | None = None
        self._failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._skip_controlled_shutdown = asyncio.Event()
        self._ports: dict[str, int] = {}
        self._config_changes: ConfigChanges | None = None
        self._isr_znodes: IsrZnodes | None = None
        self._features = Features(lambda: self._sessions.store, self._on_unexpected_error)
        self._metrics_endpoint: MetricsEndpoint | None = None
        self._office_requests: ControllerHandover | None = None
        self._own_registration: RegistrationWatch | None = None
        self._journal: Journal | None = None
        self._journal_files: JournalFiles | None = None
        self._journal_topic: JournalTopic | None = None
        self._registration_update: asyncio.Task[None] | None = None

    # ---- life

    async def start(self) -> None:
        """Raises KlammError: one sentence on why this node cannot run."""
        self.state = BrokerState.STARTING
        config = self._config
        store = await self._sessions.open()
        await store.create_top_level_paths()
        cluster_id = await store.read_or_create_cluster_id(new_topic_id(self._world.randomness.bytes))
        check_log_directories(self._world.disk, config)
        self.broker_id = await choose_broker_id(self._world.disk, config, cluster_id, store)
        self._dynamic.take(*await read_broker_configs(ConfigStore(store.client), self.broker_id))
        config = self._config = self._dynamic.current
        self._quotas = ReplicationQuotas.new(
            _loop_ms, config.replication_quota_window_num, config.replication_quota_window_size_seconds
        )
        self._throttles = ReplicationThrottles(self._quotas, self.broker_id)
        self._throttles.rates_changed(self._dynamic)
        broker = await self._bind()
        self._logs = LogManager(
            self._world,
            config.log_directories,
            self.broker_id,
            cluster_id,
            config.given,
            log_settings(config),
            self._directory_failed,
        )
        self.state = BrokerState.RECOVERY
        await self._load_logs(store)
        write_pid(self._world.disk, config.log_directories[0])
        store = await self._sessions.renewed()  # recovery after a crash may take longer than a session lives
        self._assemble(broker, cluster_id)
        await self._register(store, broker)
        await self._begin(store)
        self.state = BrokerState.RUNNING
        log.info("ready", broker=self.broker_id, epoch=self.broker_epoch, cluster=cluster_id)

    async def stop(self) -> None:
        """Hand leaders over, then close everything in order; never raises."""
        log.info("stopping", broker=self.broker_id)
        if self._config.controlled_shutdown_enable and not self._failure.done():
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            await self._hand_over()
        await self.abandon(is_clean=True)
        log.info("stopped", broker=self.broker_id)

    async def abandon(self, *, is_clean: bool = False) -> None:
        """Close what was opened so far; each step even where one before it failed."""
        self.state = BrokerState.SHUTTING_DOWN
        for close in (
            self._notices.close,
            self._close_own_registration,
            self._close_config_changes,
            self._features.close,
            self._close_office_requests,
            self._close_metrics,
            self._close_journal_topic,
            self._server.close,
            self._close_replicas,
            self._close_logs,
            self._close_controller,
            self._sessions.close,
        ):
            try:
                await close()
            except (KlammError, OSError) as error:
                log.error("could not close in order", step=close.__name__, reason=str(error))
        self.state = BrokerState.NOT_RUNNING

    def skip_controlled_shutdown(self) -> None:
        """Stop without waiting for the controller."""
        self._skip_controlled_shutdown.set()

    async def failed(self) -> str:
        """Why the node cannot go on, once that is so."""
        return await asyncio.shield(self._failure)

    # ---- steps of the start

    async def _bind(self) -> Broker:
        """Take the ports; the broker as it will be registered."""
        ports: dict[str, int] = {}
        for endpoint in self._config.endpoints:
            try:
                ports[endpoint.listener] = await self._server.bind(
                    endpoint.listener, endpoint.host, endpoint.port, self._config.socket_listen_backlog_size
                )
            except OSError as error:
                raise CannotStart(
                    f"{endpoint} cannot be listened on ({error.strerror or error}); stop who uses it, or change"
                    f" listeners in {self._config.source}"
                ) from error
        self._ports = ports
        return self._broker_to_register(self._config)

    def _broker_to_register(self, config: NodeConfig) -> Broker:
        """A listener that was added while the node runs is opened at its next start, and advertised from then on."""
        advertised = tuple(
            Endpoint(
                e.listener,
                e.security_protocol,
                e.host or self._world.network.host_name(),
                e.port or self._ports[e.listener],
            )
            for e in config.advertised_endpoints
            if e.listener in self._ports
        )
        return Broker(self.broker_id, advertised, config.broker_rack)

    async def _load_logs(self, store: Store) -> None:
        """Open every log, with the overrides of its topic; a log without partition of ours waits for StopReplica."""
        assert self._logs is not None
        overrides, unreadable = await store.read_topic_configs(await store.list_topics())
        for topic, reason in unreadable.items():
            log.error("topic config ignored, the broker's defaults hold", topic=topic, reason=reason)
        for topic, own in overrides.items():
            self._throttles.topic_changed(topic, own)
        try:
            await self._logs.load(overrides)
        except BadLogDirectory as error:
            raise CannotStart(str(error)) from error

    def _directory_failed(self, failure: DirectoryFailure) -> None:
        """What lay there is offline from now on; without any directory a node is of no use."""
        log.error("log directory failed", directory=failure.directory, reason=failure.reason)
        if self._replicas is not None:
            self._replicas.set_offline(failure.partitions)
        assert self._logs is not None
        if self._logs.live_directories:
            if self._journal_files is not None:
                self._journal_files.leave(failure.directory, self._logs.live_directories[0])
            self._notices.notify(self.broker_id)
        elif not self._failure.done():
            self._failure.set_result(
                f"no log directory is left ({failure.directory}: {failure.reason}); mend the disk and start again"
            )

    def _assemble(self, broker: Broker, cluster_id: str) -> None:
        """Everything of the node, each part given what it stands on; nothing runs yet."""
        cache, channel = self._assemble_metadata()
        replicas, replica_logs = self._assemble_replicas(broker, cache)
        controller = self._assemble_controller(cache, channel)
        fetch = Fetch(cache, replicas, self._config.fetch_max_bytes)
        self._dispatcher = Dispatcher(self._routes(cluster_id, cache, replicas, controller, fetch))
        changes = self._assemble_config_changes(controller, replica_logs)
        assert self._logs is not None
        assert self._journal is not None
        metrics = NodeMetrics(
            controller,
            replicas,
            self._dispatcher,
            fetch,
            self._sessions,
            changes,
            self._logs,
            self._journal,
            self._journal_topic,
            lambda: self.state,
        )
        self._metrics_endpoint = MetricsEndpoint(self._world.network, metrics.page)

    def _assemble_metadata(self) -> tuple[MetadataCache, ControllerChannel]:
        """What the controller tells us, and the way to ask it."""
        config = self._config
        cache = self._cache = MetadataCache(config.inter_broker_listener)
        connect_s = config.socket_connection_setup_timeout_ms / 1000
        channel = ControllerChannel(self._world, cache, self.broker_id, connect_s, config.request_timeout_ms / 1000)
        forgotten = StaleTopics(
            cache, lambda: self._sessions.store, self._throttles.topic_gone, self._on_unexpected_error
        )
        self._channel, self._forgotten = channel, forgotten

        def metadata_updated() -> None:
            channel.controller_may_have_changed()
            forgotten.metadata_updated()

        cache.on_update = metadata_updated
        return cache, channel

    def _assemble_replicas(self, broker: Broker, cache: MetadataCache) -> tuple[ReplicaManager, ReplicaLogs]:
        """Our registration, and the replicas we hold; who writes their ISRs depends on the protocol version."""
        assert self._logs is not None
        ibp = parse_ibp(self._config.inter_broker_protocol_version)
        version = VERSION_WITH_FEATURES if ibp >= FIRST_WITH_FEATURES else VERSION_WITH_LISTENERS
        self._registrar = BrokerRegistrar(broker, version=version)
        if ibp < FIRST_WITH_ALTER_PARTITION:
            self._isr_znodes = IsrZnodes(lambda: self._sessions.store, self.broker_id)
        replica_logs = ReplicaLogs(self._logs, lambda: self._sessions.store, self._throttles.topic_changed)
        replicas = self._replicas = ReplicaManager(
            self._world,
            self.broker_id,
            lambda: self.broker_epoch,
            replica_logs,
            cache,
            self._send_alter_partition if self._isr_znodes is None else self._isr_znodes.send,
            self._connect_fetcher,
            replication_settings(self._config),
            quotas=self._quotas,
        )
        return replicas, replica_logs

    def _assemble_controller(self, cache: MetadataCache, channel: ControllerChannel) -> Controller:
        """Ours, which may never have the office, its journal, and what it hands out to every node."""
        # plain files beside the partitions: Apache Kafka, given this directory, takes folders for partitions
        assert self._logs is not None
        first, *others = self._logs.live_directories
        files = self._journal_files = JournalFiles(self._world.disk, first, self.broker_id, others=others)
        self._journal = Journal(files, self.broker_id, self._world.clock)
        if topic := self._config.klamm_journal_topic:
            self._journal_topic = JournalTopic(
                self._world,
                self._config.log_directories[0],
                self.broker_id,
                topic,
                cache,
                self._connect,
                lambda api, newest, build: channel.ask(api, newest, build, says_not_controller_of_any_topic),
            )
        controller = self._controller = Controller(
            self._world,
            controller_settings(self._config, self.broker_id),
            self._connect,
            self._journal,
            self._register_again,
            wait_for_features=self._features.wait_for,
        )
        self._office_requests = ControllerHandover(
            lambda: self._sessions.store, self.broker_id, controller, self._on_unexpected_error
        )
        self._own_registration = RegistrationWatch(
            lambda: self._sessions.store, self.broker_id, self._register_again, self._on_unexpected_error
        )
        return controller

    def _routes(
        self, cluster_id: str, cache: MetadataCache, replicas: ReplicaManager, controller: Controller, fetch: Fetch
    ) -> list[Route]:
        assert self._logs is not None
        self._producer_ids = ProducerIds(self._allocate_producer_ids)
        return routes(
            self._world,
            self._config,
            self.broker_id,
            cluster_id,
            cache,
            replicas,
            controller,
            self._producer_ids,
            self._sessions,
            self._dynamic,
            fetch,
            self._logs,
            self._features,
            self._throttles,
            self._log_levels,
        )

    def _assemble_config_changes(self, controller: Controller, replica_logs: ReplicaLogs) -> ConfigChanges:
        assert self._logs is not None
        follower = ConfigFollower(
            self._dynamic,
            self._logs,
            self._server,
            controller,
            lambda: self._sessions.store,
            self._advertise,
            self._throttles,
            replica_logs.topics_changed,
        )
        changes = self._config_changes = ConfigChanges(
            lambda: self._sessions.store, self.broker_id, follower, self._world.clock.now_ms, self._on_unexpected_error
        )
        return changes

    async def _register(self, store: Store, broker: Broker) -> None:
        """An earlier process of this id may still hold the place, until its session is over."""
        assert self._registrar is not None
        await self._refuse_double_address(store, broker)
        try:
            self.broker_epoch = await self._registrar.register(store.client, self._world.clock.now_ms())
            return
        except BrokerIdTaken as taken:
            patience_s = store.client.session_timeout_ms / 1000 + _REGISTRATION_GRACE_S
            log.info("waiting for the session of an earlier process to end", up_to_s=patience_s, reason=str(taken))
        try:
            self.broker_epoch = await self._registrar.register_when_free(
                store.client, self._world.clock.now_ms(), patience_s
            )
        except BrokerIdTaken as taken:
            raise CannotStart(f"{taken}; stop that process, or give this one another broker.id") from taken

    async def _refuse_double_address(self, store: Store, broker: Broker) -> None:
        """Clients could not tell two brokers of one address apart."""
        taken = {
            (e.host, e.port): other
            for other, r in (await store.read_brokers()).brokers.items()
            for e in r.broker.endpoints
            if other != broker.id
        }
        for endpoint in broker.endpoints:
            other = taken.get((endpoint.host, endpoint.port))
            if other is not None:
                raise CannotStart(
                    f"{endpoint.host}:{endpoint.port} is already registered in ZooKeeper by broker {other}; change"
                    f" advertised.listeners in {self._config.source}"
                )

    async def _begin(self, store: Store) -> None:
        assert self._controller is not None
        assert self._replicas is not None
        found = await store.read_brokers()
        holder = await store.read_controller()
        self._cache.fill_brokers((r.broker for r in found.brokers.values()), holder.broker if holder else None)
        assert self._logs is not None
        self._logs.start()
        self._replicas.start()
        assert self._config_changes is not None
        store.client.on_watch = self._on_watch
        if self._isr_znodes is not None:
            self._isr_znodes.start()
        self._features.start()
        self._controller.start(store)
        self._config_changes.start()
        assert self._office_requests is not None
        self._office_requests.start()
        assert self._own_registration is not None
        self._own_registration.registered(store.client.session_id)
        self._own_registration.start()
        await self._open_metrics()
        await self._server.start(self._dispatcher)
        if self._journal_topic is not None:
            self._journal_topic.start()

    async def _open_metrics(self) -> None:
        host, port = self._config.klamm_metrics_host, self._config.klamm_metrics_port
        if not port:
            return
        assert self._metrics_endpoint is not None
        try:
            await self._metrics_endpoint.open(host, port)
        except OSError as error:
            raise CannotStart(
                f"{host}:{port} cannot be listened on ({error.strerror or error}); stop who uses it, or change"
                f" klamm.metrics.port in {self._config.source}"
            ) from error

    # ---- the session

    async def _session_expired(self) -> None:
        if self._controller is not None:
            await self._controller.session_expired()

    def _session_renewed(self, store: Store) -> None:
        if self._controller is not None:
            store.client.on_watch = self._on_watch
            self._controller.session_established(store)
        if self._config_changes is not None:
            self._config_changes.renewed()
        self._features.renewed()
        if self._office_requests is not None:
            self._office_requests.renewed()

    def _on_watch(self, event: WatchEvent) -> None:
        for part in (
            self._controller,
            self._config_changes,
            self._features,
            self._office_requests,
            self._own_registration,
        ):
            if part is not None:
                part.on_watch(event)

    async def _register_again(self, store: Store) -> None:
        assert self._registrar is not None
        self.broker_epoch = await self._registrar.register(store.client, self._world.clock.now_ms())
        if self._own_registration is not None:
            self._own_registration.registered(store.client.session_id)
        log.info("registered again", broker=self.broker_id, epoch=self.broker_epoch)

    def _advertise(self, config: NodeConfig) -> None:
        """Other listeners from here on: our registration says so, and the controller tells everyone."""
        assert self._registrar is not None
        self._registrar.change(self._broker_to_register(config))
        if self._registration_update is not None:
            self._registration_update.cancel()  # the newer one says all
        update = self._registrar.update(lambda: self._sessions.store.client, self._world.clock.now_ms)
        self._registration_update = asyncio.get_running_loop().create_task(update, name="registration-update")

    def _on_unexpected_error(self, what: str, error: Exception) -> None:
        log_unexpected_error(what, error)
        if self._journal is not None:
            self._journal.line(self._journal.event("Mistake"), "failed", what=what, why=repr(error))
            self._journal.flush()

    # ---- to other nodes

    async def _connect(self, host: str, port: int, client_id: str, timeout_s: float) -> Connection:
        return await Connection.open(self._world, host, port, client_id, timeout_s)

    async def _connect_fetcher(self, host: str, port: int, client_id: str) -> Connection:
        timeout_s = self._config.socket_connection_setup_timeout_ms / 1000
        return await Connection.open(self._world, host, port, client_id, timeout_s)

    async def _send_alter_partition(self, build: Any, newest: int) -> Any:
        assert self._channel is not None
        return await self._channel.ask(ApiKey.ALTER_PARTITION, newest, build, says_not_controller_anywhere)

    async def _allocate_producer_ids(self) -> ProducerIdBlock | None:
        """From the controller; brokers of older protocol versions take a block from ZooKeeper themselves."""
        assert self._channel is not None
        if parse_ibp(self._config.inter_broker_protocol_version) < FIRST_WITH_PRODUCER_IDS:
            try:
                block = await self._sessions.store.allocate_producer_ids(self.broker_id)
            except KlammError as error:
                log.warning("no block of producer ids from ZooKeeper", reason=str(error))
                return None
            return ProducerIdBlock(block.first, block.last - block.first + 1)
        answer: AllocateProducerIdsResponse = await self._channel.ask(
            ApiKey.ALLOCATE_PRODUCER_IDS,
            0,
            lambda version: AllocateProducerIdsRequest(self.broker_id, self.broker_epoch),
            says_not_controller,
        )
        if answer.error_code:
            log.warning("no block of producer ids from the controller", error=ErrorCode(answer.error_code).name)
            return None
        return ProducerIdBlock(answer.producer_id_start, answer.producer_id_len)

    # ---- steps of the stop

    async def _hand_over(self) -> None:
        if self._replicas is not None:
            self._replicas.begin_shutdown()
        shutdown = ControlledShutdown(self._world, self._config, self.broker_id, self.broker_epoch, self._sessions)
        handing = asyncio.create_task(shutdown.run())
        hurried = asyncio.create_task(self._skip_controlled_shutdown.wait())
        await asyncio.wait((handing, hurried), return_when=asyncio.FIRST_COMPLETED)
        for task in (handing, hurried):
            task.cancel()
        await asyncio.gather(handing, hurried, return_exceptions=True)

    async def _close_metrics(self) -> None:
        if self._metrics_endpoint is not None:
            await self._metrics_endpoint.close()

    async def _close_journal_topic(self) -> None:
        if self._journal_topic is not None:
            await self._journal_topic.close()

    async def _close_office_requests(self) -> None:
        if self._office_requests is not None:
            await self._office_requests.close()

    async def _close_own_registration(self) -> None:
        if self._own_registration is not None:
            await self._own_registration.close()

    async def _close_config_changes(self) -> None:
        if self._config_changes is not None:
            await self._config_changes.close()
        if self._registration_update is not None:
            self._registration_update.cancel()
            await asyncio.gather(self._registration_update, return_exceptions=True)

    async def _close_replicas(self) -> None:
        if self._producer_ids is not None:
            self._producer_ids.close()
        if self._isr_znodes is not None:
            await self._isr_znodes.close()
        if self._replicas is not None:
            await self._replicas.close()
        if self._forgotten is not None:
            await self._forgotten.close()
        if self._channel is not None:
            self._channel.close()

    async def _close_logs(self) -> None:
        if self._logs is not None:
            await self._logs.close(self.broker_epoch)

    async def _close_controller(self) -> None:
        if self._controller is not None:
            await self._controller.stop()


def _loop_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
