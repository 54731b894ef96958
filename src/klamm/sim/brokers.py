"""A node by the book: the real controller, session, registration and server, and replicas without logs.

It answers LeaderAndIsr, UpdateMetadata and StopReplica as a broker must, and as leader asks the controller to take dead
followers out of the ISR and live ones in. Logs and records do not exist: a live follower counts as caught up.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from klamm.broker.controller_channel import ControllerChannel, says_not_controller_anywhere
from klamm.broker.dispatch import Dispatcher, Route
from klamm.broker.handlers import control, for_controller
from klamm.broker.handlers.api_versions import API_VERSIONS, ApiVersions
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.settings import controller_settings, server_limits
from klamm.broker.zookeeper_sessions import ZooKeeperSessions
from klamm.config.node_config import parse_node_config
from klamm.controller.controller import Controller
from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.topic_ids import new_topic_id
from klamm.net.client import Connection
from klamm.net.server import Server
from klamm.runtime.world import World
from klamm.sim.history import OrderReceived
from klamm.sim.hosts import Host
from klamm.telemetry.journal import Journal
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from klamm.zk.errors import SessionExpired
from klamm.zk.registrar import BrokerRegistrar
from klamm.zk.store import Store

PORT: Final = 9092
_ISR_CHECK_S: Final = 1.0
_START_AGAIN_S: Final = 0.5
_ANSWER_S: Final = 5.0
_ALTER_PARTITION_VERSION: Final = 3


class NoSink:
    """A journal that nobody reads."""

    incarnation = 1

    def write(self, lines: bytes) -> None:
        """Forgotten at once."""


class StubBroker:
    """`await run()` on a host of its own; `tell` hears of every order it gets, before it is answered."""

    def __init__(
        self, world: World, number: int, incarnation: int, zookeeper: str, timeout_ms: int,
        tell: Callable[[OrderReceived], None],
    ) -> None:  # fmt: skip
        self.number = BrokerId(number)
        self.incarnation = incarnation
        self._world = world
        self._tell = tell
        text = (
            f"broker.id={number}\nzookeeper.connect={zookeeper}\nlisteners=PLAINTEXT://:{PORT}\n"
            f"zookeeper.session.timeout.ms={timeout_ms}\nlog.dirs=/data\n"
        )
        self.config = parse_node_config(text.encode(), f"broker {number}")
        self.sessions = ZooKeeperSessions(world, self.config, self._expired, self._renewed)
        self.cache = MetadataCache(self.config.inter_broker_listener)
        self.replicas: dict[TopicPartition, LeaderAndIsrPartitionState] = {}
        self.broker_epoch = -1
        self.controller_epoch = 0
        host = world.network.host_name()
        self._broker = Broker(self.number, (Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, host, PORT),))
        self._registrar = BrokerRegistrar(self._broker)
        self._channel = ControllerChannel(world, self.cache, self.number, _ANSWER_S, _ANSWER_S)
        self._server = Server(world.network, server_limits(self.config))
        self.controller = Controller(
            world,
            controller_settings(self.config, self.number),
            self._connect,
            Journal(NoSink(), number, world.clock),
            self._register,
        )

    # ---- life

    async def run(self) -> None:
        """Start, in the order of `broker.node`, and then keep the ISRs it leads; never returns."""
        store = await self._first_store()
        await store.create_top_level_paths()
        await store.read_or_create_cluster_id(new_topic_id(self._world.randomness.bytes))
        await self._server.bind("PLAINTEXT", "", PORT)
        now_ms = self._world.clock.now_ms()
        self.broker_epoch = await self._registrar.register_when_free(store.client, now_ms, 600)
        found = await store.read_brokers()
        holder = await store.read_controller()
        self.cache.fill_brokers((r.broker for r in found.brokers.values()), holder.broker if holder else None)
        store.client.on_watch = self.controller.on_watch
        self.controller.start(store)
        await self._server.start(Dispatcher(self._routes()))
        while True:
            await asyncio.sleep(_ISR_CHECK_S)
            await self._look_after_isrs()

    async def _first_store(self) -> Store:
        while True:
            try:
                return await self.sessions.open()
            except KlammError:
                await asyncio.sleep(_START_AGAIN_S)

    async def _expired(self) -> None:
        await self.controller.session_expired()

    def _renewed(self, store: Store) -> None:
        store.client.on_watch = self.controller.on_watch
        self.controller.session_established(store)

    async def _register(self, store: Store) -> None:
        self.broker_epoch = await self._registrar.register(store.client, self._world.clock.now_ms())

    async def _connect(self, host: str, port: int, client_id: str, timeout_s: float) -> Connection:
        return await Connection.open(self._world, host, port, client_id, timeout_s)

    # ---- orders

    def _routes(self) -> list[Route]:
        asked = for_controller.ForController(self.controller)
        versions = ApiVersions([API_VERSIONS, for_controller.ALTER_PARTITION, for_controller.CONTROLLED_SHUTDOWN])
        return [
            Route(API_VERSIONS, versions.handle),
            Route(control.LEADER_AND_ISR, lambda _, message: self._leader_and_isr(message)),
            Route(control.UPDATE_METADATA, lambda _, message: self._update_metadata(message)),
            Route(control.STOP_REPLICA, lambda _, message: self._stop_replica(message)),
            Route(for_controller.ALTER_PARTITION, asked.alter_partition),
            Route(for_controller.CONTROLLED_SHUTDOWN, asked.controlled_shutdown),
        ]

    def _refusal(self, message: Any) -> ErrorCode:
        """What stands against an order: an older controller, or one meant for an earlier run of this broker."""
        if message.controller_epoch < self.controller_epoch:
            code = ErrorCode.STALE_CONTROLLER_EPOCH
        elif message.broker_epoch != -1 and message.broker_epoch < self.broker_epoch:
            code = ErrorCode.STALE_BROKER_EPOCH
        else:
            code = ErrorCode.NONE
            self.controller_epoch = message.controller_epoch
        self._tell(OrderReceived(self.number, self.incarnation, self.broker_epoch, message, code))
        return code

    def _leader_and_isr(self, message: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        refusal = self._refusal(message)
        if refusal:
            return LeaderAndIsrResponse(error_code=refusal)
        for topic in message.topic_states:
            for state in topic.partition_states:
                p = TopicPartition(topic.topic_name, state.partition_index)
                known = self.replicas.get(p)
                if known is None or known.partition_epoch < state.partition_epoch:
                    self.replicas[p] = state
        return LeaderAndIsrResponse()

    def _update_metadata(self, message: UpdateMetadataRequest) -> UpdateMetadataResponse:
        refusal = self._refusal(message)
        if not refusal:
            self.cache.update(message)
        return UpdateMetadataResponse(error_code=refusal)

    def _stop_replica(self, message: StopReplicaRequest) -> StopReplicaResponse:
        refusal = self._refusal(message)
        if not refusal:
            for topic in message.topic_states:
                for state in topic.partition_states:
                    if state.delete_partition:
                        self.replicas.pop(TopicPartition(topic.topic_name, state.partition_index), None)
        return StopReplicaResponse(error_code=refusal)

    # ---- as leader

    async def _look_after_isrs(self) -> None:
        for p, state in list(self.replicas.items()):
            if state.leader != self.number or self.cache.topic_id(p.topic) is None:
                continue
            wanted = tuple(r for r in state.replicas if r == self.number or self.cache.is_alive(BrokerId(r)))
            if set(wanted) != set(state.isr):
                await self._alter(p, state, wanted)

    async def _alter(self, p: TopicPartition, state: LeaderAndIsrPartitionState, isr: tuple[int, ...]) -> None:
        data = AlterPartitionRequestPartitionData(
            partition_index=p.partition,
            leader_epoch=state.leader_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=b, broker_epoch=-1) for b in isr],
            partition_epoch=state.partition_epoch,
        )
        topic = AlterPartitionRequestTopicData(topic_id=self.cache.topic_id(p.topic), partitions=[data])
        request = AlterPartitionRequest(self.number, self.broker_epoch, [topic])
        # the same proposal until it is answered: only so does a lost answer do no harm
        answer = await self._channel.ask(
            ApiKey.ALTER_PARTITION, _ALTER_PARTITION_VERSION, lambda version: request, says_not_controller_anywhere
        )
        for answered in answer.topics[0].partitions if answer.topics else []:
            known = self.replicas.get(p)
            newer = known is not None and answered.partition_epoch > known.partition_epoch
            if not answered.error_code and known is not None and newer and known.leader_epoch == answered.leader_epoch:
                known.isr, known.partition_epoch = tuple(answered.isr), answered.partition_epoch


@dataclass(slots=True)
class Node:
    """A broker and the run of the process it is in."""

    broker: StubBroker
    host: Host

    @property
    def session(self) -> int:
        """The id of its ZooKeeper session; 0 where it has none."""
        try:
            return self.broker.sessions.store.client.session_id
        except SessionExpired:
            return 0
