"""A simulated broker: the production controller, session, registration and server, with replicas that hold no records.

It handles LeaderAndIsr, UpdateMetadata and StopReplica like a broker. As leader it sends AlterPartition: it removes
followers that stopped fetching from the ISR, and adds those that fetch, because without records they have caught up.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from klamm.broker.config_changes import ConfigChanges
from klamm.broker.controlled_shutdown import ControlledShutdown
from klamm.broker.controller_channel import (
    ControllerChannel,
    is_not_controller,
    is_not_controller_for_a_partition,
)
from klamm.broker.crash_guard import CrashGuard
from klamm.broker.dispatch import Dispatcher, Request, Route
from klamm.broker.handlers import control, controller_apis
from klamm.broker.handlers.api_versions import API_VERSIONS, ApiVersions
from klamm.broker.isr_znodes import IsrZnodes
from klamm.broker.log_dir_failures import LogDirFailureNotifier
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.settings import server_limits
from klamm.broker.stale_topics import StaleTopics
from klamm.broker.zookeeper_sessions import ZooKeeperSessions
from klamm.client.connection import Connection
from klamm.client.ports import BrokerConnection
from klamm.controller.controller import Controller
from klamm.controller.decisions.standby import StandbyMode, keeps_mirror
from klamm.controller.events import Expire
from klamm.controller.standby import StandbyPorts
from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import ZERO_ID, new_topic_id
from klamm.net.server import Server
from klamm.replication.instructions import (
    answer_instructions,
    instructions_of,
    stop_instructions_of,
)
from klamm.runtime.time_slices import CountedSlices
from klamm.runtime.world import World
from klamm.sim.faults.injection_points import Injection
from klamm.sim.history.trace import (
    ConfigsApplied,
    Event,
    EventBegan,
    LeaderAndIsrApplied,
    LogsDestroyed,
    NodeStopped,
    ReplicaRolesChanged,
    RequestReceived,
    RequestUnanswered,
    SessionReestablished,
    UncleanDefaultChanged,
    UnexpectedError,
)
from klamm.sim.hosts import Host
from klamm.sim.nodes.controller_observer import ControllerObserver, OnEvent
from klamm.sim.nodes.faulty_requests import FaultyRequests, ReceivedRequest, can_detect_staleness
from klamm.sim.nodes.proposals import NEWEST_ALTER_PARTITION, ProposedIsr, alter_partition_request
from klamm.sim.nodes.replicas import Logs, Replica, Replicas
from klamm.sim.nodes.settings import PORT, NodeSettings, controller_settings_of, node_config
from klamm.telemetry.journal import Journal, Sink
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterPartitionRequest,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from klamm.zk.configs import DEFAULT_ENTITY
from klamm.zk.errors import SessionExpired
from klamm.zk.registrar import BrokerRegistrar
from klamm.zk.registrations import VERSION_WITH_FEATURES, VERSION_WITH_LISTENERS
from klamm.zk.store import Store
from klamm.zk.watches import WatchEvent

_UNCLEAN: Final = "unclean.leader.election.enable"
_ISR_CHECK_INTERVAL_S: Final = 1.0
_CONNECT_RETRY_S: Final = 0.5
_CONTROLLER_TIMEOUT_S: Final = 5.0
_ANSWER_LIMIT_AFTER_EXPIRY_S: Final = 1.0
"""Long enough for a term's end, and for those who asked while it came, on a host that takes milliseconds for a step."""
_ALTER_PARTITION_BY_NAME: Final = 1


class NodeContext(NamedTuple):
    """What a simulated broker gets from the simulation around it."""

    on_event: OnEvent
    """Called with every control request before it is answered, and with all that the node's controller does."""
    fetches: Callable[[BrokerId, TopicPartition, int], bool]
    """Whether a broker fetches a partition from this one, its leader, in that leader epoch."""
    logs: Logs
    """The logs on its machine."""
    step: Injection
    """Called before each control request; returns the failure to inject."""
    journal: Sink | None = None
    """Where its controller's journal is written; None for nowhere."""


class StubBroker:
    """One process of a simulated broker: `await run()` on its host."""

    def __init__(
        self, world: World, number: int, incarnation: int, node_settings: NodeSettings, node_context: NodeContext
    ) -> None:
        self.number = BrokerId(number)
        self.incarnation = incarnation
        self._world = world
        self._on_event = node_context.on_event
        self._fetches = node_context.fetches
        self.config = node_config(number, node_settings)
        self.supports_features = node_settings.supports_features
        self.sessions = ZooKeeperSessions(world, self.config, CrashGuard(world, self.config))
        self.sessions.add_listener(self)
        self.cache = MetadataCache(self.config.inter_broker_listener)
        self._forgotten = StaleTopics(self.cache, lambda: self.sessions.store)
        self.cache.on_update = self._forgotten.metadata_updated
        self.replicas = Replicas(self.number, node_context.logs)
        self.lagging: dict[BrokerId, None] = {}
        """Followers that fall behind, as far as this leader sees."""
        self.requests = FaultyRequests(self.number, node_context.step)
        self.broker_epoch = -1
        self.is_ready = False
        """It is registered and serves, and does not leave."""
        self.on_closing: Callable[[], None] = lambda: None
        """Called when it leaves in order, just before it closes its ZooKeeper session."""
        self._is_leaving = False
        self._proposed: Mapping[TopicPartition, Replica] = {}
        self._has_proposals = asyncio.Event()
        self._notices = LogDirFailureNotifier(lambda: self.sessions.store)
        host = world.network.host_name()
        self._broker = Broker(self.number, (Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, host, PORT),))
        self._channel = ControllerChannel(world, self.cache, self.number, _CONTROLLER_TIMEOUT_S, _CONTROLLER_TIMEOUT_S)
        self._server = Server(world.network, server_limits(self.config))
        self.controller_settings = settings = controller_settings_of(self.config, self.number, node_settings)
        version = VERSION_WITH_FEATURES if settings.versions_features else VERSION_WITH_LISTENERS
        self._registrar = BrokerRegistrar(self._broker, version=version, features=settings.supported_features)
        self._uses_topic_ids = settings.uses_topic_ids
        writes_isrs = not settings.controller_owns_partition_state
        self._isr_znodes = IsrZnodes(lambda: self.sessions.store, number) if writes_isrs else None
        """How leaders of old protocols change their ISRs: without the controller."""
        self._observer = ControllerObserver(self.number, incarnation, settings, self._on_controller_event)
        self.controller = Controller(
            world,
            settings,
            self._connect,
            Journal(node_context.journal, number, world.clock),
            self._register,
            self._observer,
            make_slices=CountedSlices,
            standby=StandbyPorts(self.sessions.open_mirror_session, self._keeps_mirror)
            if node_settings.keeps_mirrors
            else None,
        )
        kept = KeptConfigs(self.number, self.controller, self._report_configs)
        now_ms = world.clock.now_ms
        self.config_changes = ConfigChanges(lambda: self.sessions.store, number, kept, now_ms, self._report_mistake)
        self.sessions.add_listener(self.config_changes)

    # ---- life

    def _keeps_mirror(self) -> bool:
        """Whether this node keeps a mirror while it is not controller."""
        return keeps_mirror(StandbyMode.AUTO, self.number, self.cache.brokers)

    async def run(self) -> None:
        """Start in the order of `broker.node`, then send ISR changes of led partitions; never returns."""
        store = await self._first_store()
        await store.create_top_level_paths()
        await store.read_or_create_cluster_id(new_topic_id(self._world.randomness.bytes))
        await self._server.bind("PLAINTEXT", "", PORT)
        now_ms = self._world.clock.now_ms()
        self.broker_epoch = await self._registrar.register_when_free(store.client, now_ms, 600)
        found = await store.read_brokers()
        holder = await store.read_controller()
        self.cache.fill_brokers((r.broker for r in found.brokers.values()), holder.broker if holder else None)
        self.controller.start(store)
        await self._server.start(Dispatcher(self._routes(), self._world.request_slices))
        self.config_changes.start()
        if self._isr_znodes is not None:
            self._isr_znodes.start()
        self.is_ready = True
        loop = asyncio.get_running_loop()
        while True:
            loop.call_later(_ISR_CHECK_INTERVAL_S, self._check_isrs)
            await self._has_proposals.wait()
            self._has_proposals.clear()
            await self._propose(self._proposed)

    async def _first_store(self) -> Store:
        """Connect to ZooKeeper, retrying until it succeeds."""
        while True:
            try:
                await self.sessions.start()
                return self.sessions.store
            except KlammError:
                await asyncio.sleep(_CONNECT_RETRY_S)

    async def session_expired(self) -> None:
        """Pass the expiry of the ZooKeeper session on to the controller."""
        await self.controller.session_expired()

    def session_established(self, store: Store) -> None:
        """Pass a new ZooKeeper session on to the controller."""
        self._on_event(SessionReestablished(self.number, self.incarnation))
        self.controller.session_established(store)

    def on_watch(self, event: WatchEvent) -> None:
        """Pass a ZooKeeper notification on to the controller."""
        self.controller.on_watch(event)

    async def _register(self, store: Store) -> None:
        """Register the broker in ZooKeeper and keep its new broker epoch."""
        self.broker_epoch = await self._registrar.register(store.client, self._world.clock.now_ms())

    async def _connect(self, host: str, port: int, client_id: str, timeout_s: float) -> BrokerConnection:
        """Open a connection from this node's controller to a broker, observed by the simulation."""
        open_connection = partial(Connection.open, self._world, host, port, client_id, timeout_s)
        return await self._observer.connect(host, open_connection)

    async def shut_down(self) -> bool:
        """Do a controlled shutdown, close, end the session; return whether the controller moved the leaders."""
        self._is_leaving, self.is_ready = True, False
        departure = ControlledShutdown(self._world, self.config, self.number, lambda: self.broker_epoch, self.sessions)
        moved = await departure.run()
        await self.config_changes.close()
        await self._notices.close()
        await self._forgotten.close()
        await self._server.close()
        self._channel.close()
        await self.controller.stop()
        self.on_closing()
        await self.sessions.close()
        self._on_event(NodeStopped(self.number, self.incarnation))
        return moved

    def fail_log_dir(self, partitions: Iterable[TopicPartition]) -> None:
        """Fail these replicas with their log directory, and notify the controller; call it on this broker's host."""
        self.replicas.fail_partitions(partitions)
        self._notices.notify(self.number)

    def allow_unclean_election(self, allowed: bool) -> None:
        """Change this broker's default of `unclean.leader.election.enable`; call it on the broker's host."""
        self._on_event(UncleanDefaultChanged(self.number, self.incarnation, allowed))
        self.controller.allow_unclean_election(allowed)

    # ---- control requests

    def _routes(self) -> list[Route]:
        """Return the handlers of the requests that the stub answers."""
        requested = controller_apis.ControllerApis(self.controller)
        versions = ApiVersions([API_VERSIONS, controller_apis.ALTER_PARTITION, controller_apis.CONTROLLED_SHUTDOWN])
        return [
            Route(API_VERSIONS, versions.handle),
            Route(control.LEADER_AND_ISR, self.requests.on_control_request(self._leader_and_isr)),
            Route(control.UPDATE_METADATA, self.requests.on_control_request(self._update_metadata)),
            Route(control.STOP_REPLICA, self.requests.on_control_request(self._stop_replica)),
            Route(controller_apis.ALTER_PARTITION, self.requests.on_broker_request(requested.alter_partition)),
            Route(controller_apis.CONTROLLED_SHUTDOWN, self.requests.on_broker_request(requested.controlled_shutdown)),
        ]

    def replay(self, received: ReceivedRequest) -> None:
        """Deliver an earlier control request once more, as over another connection."""
        if not self.is_ready:
            return  # a broker that is not registered does not serve
        request, message = received
        if message.controller_epoch == self.replicas.controller_epoch and not can_detect_staleness(
            self.replicas, received
        ):
            return
        match request.api_key:
            case ApiKey.LEADER_AND_ISR:
                self._leader_and_isr(request, message)
            case ApiKey.UPDATE_METADATA:
                self._update_metadata(request, message)
            case ApiKey.STOP_REPLICA:
                self._stop_replica(request, message)

    def _request_error(self, message: Any) -> ErrorCode:
        """The error that rejects a control request as a whole (old broker or controller epoch), or NONE."""
        code = self.replicas.check_epochs(message.broker_epoch, self.broker_epoch, message.controller_epoch)
        self._on_event(RequestReceived(self.number, self.incarnation, self.broker_epoch, message, code))
        return code

    def _leader_and_isr(self, request: Request, message: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Answer LeaderAndIsr: store the partition states that it has."""
        decoded = list(instructions_of(message, request.version))
        refusal = self._request_error(message)
        if refusal:
            stale = refusal is ErrorCode.STALE_CONTROLLER_EPOCH
            errors = {o.topic_partition: refusal for o in decoded} if stale else {}
        else:
            before = {o.topic_partition: self.replicas.leader_epoch(o.topic_partition) for o in decoded}
            errors = self.replicas.apply_leader_and_isr(decoded, asyncio.get_running_loop().time())
            epochs = {p: (epoch, self.replicas.leader_epoch(p)) for p, epoch in before.items()}
            roles = self.replicas.roles(before)
            accepted = [p for p, error in errors.items() if not error]
            self._on_event(LeaderAndIsrApplied(self.number, self.incarnation, epochs, roles, accepted))
        return answer_instructions(decoded, errors, request.version, refusal)

    def _update_metadata(self, request: Request, message: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """Answer UpdateMetadata: store the metadata that it has."""
        refusal = self._request_error(message)
        if not refusal:
            self.cache.update(message)
        return UpdateMetadataResponse(error_code=refusal)

    def _stop_replica(self, request: Request, message: StopReplicaRequest) -> StopReplicaResponse:
        """Answer StopReplica: remove the replicas that it stops."""
        refusal = self._request_error(message)
        if refusal:
            return StopReplicaResponse(error_code=refusal)
        stops = list(stop_instructions_of(message, request.version))
        before = {s.topic_partition: self.replicas.logs.get(s.topic_partition) for s in stops if s.deletes}
        errors = self.replicas.stop(stops)
        destroyed = {p: held for p, held in before.items() if held is not None and p not in self.replicas.logs}
        if destroyed:
            self._on_event(LogsDestroyed(self.number, self.incarnation, message.controller_epoch, destroyed))
        answers = [StopReplicaPartitionError(p.topic, p.partition, error) for p, error in errors.items()]
        return StopReplicaResponse(partition_errors=answers)

    def _on_controller_event(self, event: Event) -> None:
        """Pass on an event of this node's controller; after a session expiry, report requests that stay unanswered."""
        self._on_event(event)
        if isinstance(event, EventBegan) and isinstance(event.event, Expire) and self.requests.unanswered:
            asyncio.get_running_loop().call_later(
                _ANSWER_LIMIT_AFTER_EXPIRY_S, self._report_unanswered, dict(self.requests.unanswered)
            )

    def _report_unanswered(self, requested: Mapping[int, str]) -> None:
        """Report each of these requests that still has no response."""
        for number, what in requested.items():
            if number in self.requests.unanswered:
                self._on_event(RequestUnanswered(self.number, what))

    def _report_configs(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Report configs that this broker applied."""
        self._on_event(ConfigsApplied(self.number, self.incarnation, configs))

    def _report_mistake(self, what: str, error: Exception) -> None:
        """Report an unexpected error."""
        self._on_event(UnexpectedError(self.number, error, what))

    # ---- as leader

    def _check_isrs(self) -> None:
        """Once a second, propose ISR changes; while one is proposed, wait for its response instead."""
        loop = asyncio.get_running_loop()
        if self.replicas.hosted and not self._is_leaving:
            self._proposed = dict(self.replicas.propose(loop.time(), self._fetches, self.cache.is_alive, self.lagging))
            if self._proposed:
                self._report_roles(self._proposed)
                self._has_proposals.set()
                return
        loop.call_later(_ISR_CHECK_INTERVAL_S, self._check_isrs)

    async def _propose(self, proposed: Mapping[TopicPartition, Replica]) -> None:
        """Send all proposed ISRs in one AlterPartition, and repeat the same request until it is answered.

        It carries the current topic ids and epochs, so a topic that is recreated meanwhile is not confused with it.
        """
        requested = {
            p: ProposedIsr(self.replicas.logs.get(p, ZERO_ID), r.leader_epoch, r.partition_epoch, r.proposal)
            for p, r in proposed.items()
            if r.proposal is not None  # a newer control request withdrew it
        }
        if not requested:
            return

        def build(version: int) -> AlterPartitionRequest:
            """Build the request for this version, with the broker epoch of the attempt."""
            return alter_partition_request(self.number, self.broker_epoch, requested, version)

        if self._isr_znodes is None:
            has_ids = self._uses_topic_ids and all(a.topic_id != ZERO_ID for a in requested.values())
            newest = NEWEST_ALTER_PARTITION if has_ids else _ALTER_PARTITION_BY_NAME
            answer = await self._channel.ask(
                ApiKey.ALTER_PARTITION, newest, build, is_not_controller, is_not_controller_for_a_partition
            )
        else:
            try:
                answer = await self._isr_znodes.send(build, NEWEST_ALTER_PARTITION)
            except KlammError:
                return  # no ZooKeeper: a second later the same is proposed again
        names = {a.topic_id: p.topic for p, a in requested.items()}
        for topic in answer.topics:
            for answered in topic.partitions:
                p = TopicPartition(topic.topic_name or names.get(topic.topic_id, ""), answered.partition_index)
                if p in proposed:
                    self.replicas.on_alter_partition_response(p, proposed[p], answered)
        self._report_roles(proposed)

    def _report_roles(self, partitions: Iterable[TopicPartition]) -> None:
        """Report the current leader or follower role of these replicas to the simulation."""
        self._on_event(ReplicaRolesChanged(self.number, self.incarnation, self.replicas.roles(partitions)))


@dataclass(slots=True)
class Node:
    """A simulated broker and the host its process runs on."""

    broker: StubBroker
    host: Host

    @property
    def session(self) -> int:
        """The id of its ZooKeeper session; 0 where it has none."""
        try:
            return self.broker.sessions.store.client.session_id
        except SessionExpired:
            return 0

    @property
    def session_timeout_ms(self) -> int:
        """The node's ZooKeeper session timeout, in ms."""
        return self.broker.config.zookeeper_session_timeout_ms

    @property
    def is_controller(self) -> bool:
        """Whether the node is the active controller."""
        return self.broker.controller.is_active

    @property
    def waits_for_alter_partition(self) -> bool:
        """Whether a replica of the node has proposed an ISR and has no answer yet."""
        return any(r.proposal is not None for r in self.broker.replicas.hosted.values())


class KeptConfigs:
    """Keeps changed configs, and starts the elections that they allow; gets the changes as in production."""

    def __init__(
        self, broker: BrokerId, controller: Controller, on_applied: Callable[[Mapping[str, Mapping[str, str]]], None]
    ) -> None:
        """`on_applied` gets the configs by entity, the path below `/config`."""
        self._broker = broker
        self._controller = controller
        self._on_applied = on_applied

    @property
    def hosted_topics(self) -> list[str]:
        """None: this broker has no logs."""
        return []

    async def topics_changed(self, overrides: Mapping[str, Mapping[str, str]]) -> None:
        """Keep the overrides of these topics; where one allows unclean elections, notify the controller."""
        self._on_applied({f"topics/{topic}": own for topic, own in overrides.items()})
        for topic, own in overrides.items():
            if own.get(_UNCLEAN) == "true":
                self._controller.unclean_election_enabled(topic)

    async def brokers_changed(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Keep the configs of all brokers, and of this one."""
        self._on_applied({f"brokers/{DEFAULT_ENTITY}": cluster, f"brokers/{self._broker}": broker})
