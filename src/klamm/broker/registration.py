"""This broker's registration: made at the start, and again in each later session. Source: KafkaServer.scala (3.9)."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from klamm.broker.context import NodeContext
from klamm.broker.lifecycle import CannotStart
from klamm.broker.listeners import BoundListeners
from klamm.config.node_config import NodeConfig
from klamm.controller.settings import FIRST_WITH_FEATURES, parse_ibp
from klamm.model.brokers import Broker
from klamm.zk.registrar import BrokerIdTaken, BrokerRegistrar
from klamm.zk.registrations import VERSION_WITH_FEATURES, VERSION_WITH_LISTENERS
from klamm.zk.store import Store

_REGISTRATION_GRACE_S: Final = 15.0
log = structlog.get_logger("node")


class Registration:
    """A part of a node: `start` registers; the end of the session removes the registration."""

    def __init__(self, context: NodeContext, listeners: BoundListeners) -> None:
        self._context = context
        self._listeners = listeners
        self._broker = listeners.advertised_broker(context.broker_id, context.config)
        ibp = parse_ibp(context.config.inter_broker_protocol_version)
        version = VERSION_WITH_FEATURES if ibp >= FIRST_WITH_FEATURES else VERSION_WITH_LISTENERS
        self._registrar = BrokerRegistrar(self._broker, version=version)
        self._update: asyncio.Task[None] | None = None
        self.on_registered: Callable[[int], None] = lambda session_id: None
        """Gets the id of the session that holds the registration now."""

    async def start(self) -> None:
        """Register; first wait for the session of an earlier process with this id to end. Raises CannotStart."""
        store = await self._context.sessions.wait_for_session()  # loading logs may take longer than a session lives
        await self._check_addresses(store)
        try:
            await self._register(store)
            return
        except BrokerIdTaken as taken:
            timeout_s = store.session_timeout_ms / 1000 + _REGISTRATION_GRACE_S
            log.info(
                "registration waits until the ZooKeeper session of an earlier process of this broker ends",
                up_to_s=timeout_s,
                reason=str(taken),
            )
        try:
            self._context.status.broker_epoch = await self._registrar.register_when_free(
                store.client, self._context.world.clock.now_ms(), timeout_s
            )
        except BrokerIdTaken as taken:
            raise CannotStart(
                f"{taken}. Stop that process, or change {self._context.config.where('broker.id')}."
            ) from taken
        self.on_registered(store.session_id)

    async def close(self) -> None:
        """Cancel the update of the broker znode, if one is under way."""
        if self._update is not None:
            self._update.cancel()
            await asyncio.gather(self._update, return_exceptions=True)

    async def register_again(self, store: Store) -> None:
        """Register in a new session, or after the registration was deleted. Raises KlammError."""
        await self._register(store)
        log.info("registered again", broker=self._context.broker_id, epoch=self._context.status.broker_epoch)

    def advertise(self, config: NodeConfig) -> None:
        """Change the advertised listeners in this broker's registration; the controller then notifies all brokers."""
        self._registrar.change(self._listeners.advertised_broker(self._context.broker_id, config))
        if self._update is not None:
            self._update.cancel()  # the new update replaces it
        update = self._registrar.update(lambda: self._context.sessions.store.client, self._context.world.clock.now_ms)
        self._update = asyncio.get_running_loop().create_task(update, name="registration-update")

    async def _register(self, store: Store) -> None:
        """Write the registration and keep its broker epoch."""
        now_ms = self._context.world.clock.now_ms()
        self._context.status.broker_epoch = await self._registrar.register(store.client, now_ms)
        self.on_registered(store.session_id)

    async def _check_addresses(self, store: Store) -> None:
        """Raise CannotStart where another broker advertises the same address, since clients would confuse the two."""
        registered = [r.broker for r in (await store.read_brokers()).brokers.values()]
        if (problem := _shared_address(self._broker, registered)) is not None:
            config = self._context.config
            key = "advertised.listeners" if "advertised.listeners" in config.places else "listeners"
            raise CannotStart(f"{problem}. Change {config.where(key)}.")


def _shared_address(broker: Broker, registered: list[Broker]) -> str | None:
    """The address that this broker and a registered one both advertise; None where there is none."""
    owners = {(e.host, e.port): other.id for other in registered if other.id != broker.id for e in other.endpoints}
    for e in broker.endpoints:
        owner = owners.get((e.host, e.port))
        if owner is not None:
            return f"{e.host}:{e.port} is already registered in ZooKeeper by broker {owner}"
    return None
