"""Injected bugs of broker registrations and ZooKeeper sessions."""

import asyncio
from typing import Any

from tests.simulation.injected_bugs.mutant import Patch

from klamm.broker import zookeeper_sessions
from klamm.controller import controller, events
from klamm.controller.decisions import changes
from klamm.controller.events import RegisterBrokerAndReelect
from klamm.controller.handlers import (
    brokers,
    isr,
    replicas,
)
from klamm.controller.term_context import TermContext
from klamm.model.errors import ErrorCode, KlammError
from klamm.zk import registrar
from klamm.zk.session import Session


def half_of_partitions_sent_to_started_broker(patch: Patch) -> None:
    """A broker that registers gets the states of half of its partitions only."""
    online = replicas.replicas_online

    async def half(term: TermContext, told: Any, elections_follow: bool = False) -> None:
        """The patched function, with the injected bug."""
        even = {b: [p for p in ps if p.partition % 2 == 0] for b, ps in told.items()}
        await online(term, even, elections_follow)

    patch.setattr(brokers, "replicas_online", half)


def registrations_read_before_the_event(patch: Patch) -> None:
    """The broker list is read when the watch is triggered, and handled later, perhaps after a newer list."""
    on_watch = controller.Controller.on_watch
    handle = controller.HANDLERS[events.BrokerChange]
    listed: dict[int, Any] = {}

    def read_first(self: Any, watch: Any) -> None:
        """The patched function, with the injected bug."""
        if watch.path != "/brokers/ids" or self._store is None or not self.is_active:
            on_watch(self, watch)
            return
        event = events.BrokerChange()

        async def read() -> None:
            try:
                listed[id(event)] = await self._store.read_brokers(watch=True)
            except KlammError:
                return
            await asyncio.sleep(0.2)
            self._queue.put(event)

        self._reading = asyncio.get_running_loop().create_task(read())

    async def on_change(term: TermContext, event: Any) -> None:
        """The patched function, with the injected bug."""
        found = listed.pop(id(event), None)
        if found is None:
            await handle(term, event)
            return
        read = term.store.read_brokers

        async def as_listed(watch: bool = False) -> Any:
            return found

        term.store.read_brokers = as_listed  # type: ignore[method-assign]
        try:
            await handle(term, event)
        finally:
            term.store.read_brokers = read  # type: ignore[method-assign]

    patch.setattr(controller.Controller, "on_watch", read_first)
    patch.setitem(controller.HANDLERS, events.BrokerChange, on_change)


def bounces_not_noticed(patch: Patch) -> None:
    """The controller ignores that a registration was replaced by that of a restarted broker."""
    diff = changes.diff_brokers

    def without_bounces(*seen: Any) -> Any:
        """The patched function, with the injected bug."""
        return diff(*seen)._replace(bounced=())

    patch.setattr(brokers, "diff_brokers", without_bounces)


def old_broker_epochs_accepted(patch: Patch) -> None:
    """The controller accepts requests with an old broker epoch."""
    patch.setattr(isr, "check_sender", lambda context, broker, epoch: ErrorCode.NONE)
    patch.setattr(brokers, "check_controlled_shutdown", lambda context, broker, epoch: ErrorCode.NONE)


def old_registration_is_fatal(patch: Patch) -> None:
    """A node does not recognise the registration of its own earlier session, and cannot register."""
    settle = registrar.BrokerRegistrar._resolve_conflict

    async def of_this_session_only(self: Any, client: Any, path: str) -> Any:
        """The patched function, with the injected bug."""
        self._sessions.clear()
        self._payloads.clear()
        return await settle(self, client, path)

    patch.setattr(registrar.BrokerRegistrar, "_resolve_conflict", of_this_session_only)


def only_learned_sessions_and_once(patch: Patch) -> None:
    """A node knows only sessions whose connect response it received, and tries to register once."""
    only_the_last_session_counts(patch)
    _registered_once(patch)


def only_the_last_session_counts(patch: Patch) -> None:
    """A node replaces only the registration of its last known session."""
    settle = registrar.BrokerRegistrar._resolve_conflict

    async def of_known_sessions(self: Any, client: Any, path: str) -> Any:
        """The patched function, with the injected bug."""
        self._payloads.clear()
        return await settle(self, client, path)

    patch.setattr(registrar.BrokerRegistrar, "_resolve_conflict", of_known_sessions)


def registered_once(patch: Patch) -> None:
    """A registration that is refused is not tried again, on top of knowing no earlier session."""
    old_registration_is_fatal(patch)
    _registered_once(patch)


def _registered_once(patch: Patch) -> None:
    """A registration that fails is not tried again."""

    async def once(self: Any, event: RegisterBrokerAndReelect, cause: str) -> None:
        if event.store is self._store:
            self._election.use_session(event.store)
            await self._register(event.store)
            await self._election.elect(cause)

    patch.setattr(controller.Controller, "_register_and_reelect", once)


def sessions_after_the_end(patch: Patch) -> None:
    """A session that expires while the node closes is replaced by a new one."""
    changed = zookeeper_sessions.ZooKeeperSessions._on_state

    def renew_anyway(self: Any, client: Any, state: Any) -> None:
        """The patched function, with the injected bug."""
        self._closed = False
        changed(self, client, state)

    patch.setattr(zookeeper_sessions.ZooKeeperSessions, "_on_state", renew_anyway)


def closing_sessions_reconnect(patch: Patch) -> None:
    """A session that is being closed reconnects after a lost connection, and may learn that it expired."""
    lose = Session._end_connection

    def lose_and_go_on(self: Session, reason: str, now: float, *, hung_up: bool = False) -> None:
        """The patched function, with the injected bug."""
        closing, self._closing = self._closing, False
        lose(self, reason, now, hung_up=hung_up)
        self._closing = closing

    patch.setattr(Session, "_end_connection", lose_and_go_on)


def session_opened_while_node_stops(patch: Patch) -> None:
    """Closing a node does not cancel the search for a new session."""
    close = zookeeper_sessions.ZooKeeperSessions.close

    async def close_and_go_on(self: Any) -> None:
        """The patched function, with the injected bug."""
        self._renewal = None
        await close(self)

    patch.setattr(zookeeper_sessions.ZooKeeperSessions, "close", close_and_go_on)
