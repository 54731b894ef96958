"""The election of this node as controller, its terms and its resignation.

Kafka compares broker ids; this also compares the session that owns `/controller`. A `/controller` of an earlier session
does not make this node controller, and one of this session without a term is deleted (KAFKA-13407). Source:
KafkaController.elect, maybeResign (3.9).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from klamm.controller.channels import ChannelPorts, Channels
from klamm.controller.context import ControllerContext
from klamm.controller.handlers.failover import on_controller_failover
from klamm.controller.loading import free_context
from klamm.controller.metrics import ControllerMetrics
from klamm.controller.mirror import Mirror
from klamm.controller.observer import Observer
from klamm.controller.request_batch import RequestBatch
from klamm.controller.settings import ControllerSettings
from klamm.controller.standby import Standby
from klamm.controller.term_context import TermContext, WaitForFeatures
from klamm.controller.timers import Timers
from klamm.model.errors import KlammError
from klamm.runtime.time_slices import Slices
from klamm.telemetry.journal import Journal
from klamm.zk.controller_store import ControllerStore
from klamm.zk.election import ControllerEpoch
from klamm.zk.errors import BadVersion, NoNode
from klamm.zk.fenced import ControllerMoved
from klamm.zk.store import ControllerZnode, Store
from klamm.zk.znodes import CONTROLLER_EPOCH

ELECTION_BACKOFF_S: Final = 0.25
"""The pause after a failed start of a term: ZooKeeper may be readable later, or for another broker."""


@dataclass(frozen=True, slots=True)
class ElectionPorts:
    """What a term needs from the node: connections, clock, randomness, features, time slices."""

    channels: ChannelPorts
    now_ms: Callable[[], int]
    random_bytes: Callable[[int], bytes]
    wait_for_features: WaitForFeatures
    make_slices: Callable[[], Slices]


async def _no_mirror(_zxid: int) -> Mirror | None:
    """Return None: this node keeps no mirror."""
    return None


class NoController(KlammError):
    """There is no `/controller`, and no watch will tell of an election."""


class ControllerElection:
    """This node's part in controller elections; `term` is set from the election to the resignation, else None."""

    def __init__(
        self,
        settings: ControllerSettings,
        ports: ElectionPorts,
        journal: Journal,
        metrics: ControllerMetrics,
        observer: Observer | None,
        standby: Standby | None = None,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._ports = ports
        self._journal = journal
        self._observer = observer or Observer()
        self._detail_observer = observer
        """The given observer, or None: without one, single partitions and requests notify nobody."""
        self._standby = standby
        self._store: Store | None = None
        self.term: TermContext | None = None
        self._freeing: dict[asyncio.Task[None], None] = {}
        """Tasks that free the contexts of ended terms."""

    def close(self) -> None:
        """Stop freeing what ended terms left: the process ends."""
        for task in self._freeing:
            task.cancel()

    def use_session(self, store: Store) -> None:
        """Use this ZooKeeper session from now on."""
        assert self.term is None or store is self._store, "a term must end before its ZooKeeper session is replaced"
        self._store = store

    def allow_unclean_election(self, allowed: bool) -> None:
        """Set the brokers' default for unclean elections, for this term and later ones."""
        self._settings = replace(self._settings, unclean_leader_election=allowed)
        if self.term is not None:
            self.term.settings = self._settings

    async def elect(self, cause: str) -> None:
        """Become controller if there is none; otherwise watch `/controller`."""
        store = self._current_store()
        holder = await store.read_controller(watch=True)
        if holder is not None and self._is_ours(holder, store) and self.term is None:
            await self._delete_znode_without_term(store, holder, cause)
            holder = None
        if holder is not None or self.term is not None:
            return
        await self._start_term_if_won(
            store, store.register_controller(self._settings.broker_id, self._ports.now_ms()), cause
        )

    async def take_over(self, cause: str, epoch: int) -> None:
        """Replace the current controller if its epoch is still this one; a KRaft controller is never replaced."""
        store = self._current_store()
        holder = await store.read_controller(watch=True)
        if holder is not None and holder.is_kraft:
            self._journal.refused(
                cause, "become controller", "a KRaft controller owns /controller: the cluster is being migrated"
            )
        elif self.term is None:
            won = store.replace_controller(self._settings.broker_id, self._ports.now_ms(), epoch)
            await self._start_term_if_won(store, won, cause)

    async def _start_term_if_won(self, store: Store, winning: Awaitable[ControllerEpoch], cause: str) -> None:
        """Await the write of `/controller`, start a term and run the failover; resign if that fails."""
        try:
            epoch = await winning
            self._create_term(store, epoch, cause)
            assert self.term is not None
            await on_controller_failover(self.term)
        except ControllerMoved as error:
            self._journal.line(cause, "not-elected", why=str(error))
            if await self.resign_after_refused_write(cause) is None:
                # created and deleted while this node was disconnected: no watch fires, the event is retried
                raise NoController("the controller that was elected instead of this node is gone already") from error
        except Exception as error:
            if not isinstance(error, KlammError):
                self._observer.on_unexpected_error(error)
            self._journal.line(cause, "failed", what="becoming controller", why=repr(error))
            was_elected = self.term is not None
            await self.resign_and_delete_znode(cause, "could not become controller")
            await asyncio.sleep(ELECTION_BACKOFF_S)
            if isinstance(error, NoNode):  # a tree that was restored by half; brokers make these when they start
                await store.create_top_level_paths()
            if isinstance(error, KlammError) and not was_elected:
                raise  # no watch fires for this failure: the event is retried
        else:
            self._journal.line(
                cause,
                "ready",
                brokers=list(self.term.context.registered),
                topic_count=len(self.term.context.topics),
                partition_count=self.term.context.partition_count,
            )

    def _create_term(self, store: Store, epoch: ControllerEpoch, cause: str) -> None:
        """Create the context, channels and store of a term in this controller epoch."""
        context = ControllerContext(epoch.epoch)
        context.observer = self._detail_observer
        slices = self._ports.make_slices()
        channels = Channels(context, self._settings, self._ports.channels, self._journal, slices)
        self.term = TermContext(
            self._settings,
            context,
            ControllerStore(store.client, epoch),
            channels,
            RequestBatch(context, self._settings, channels, slices, self._detail_observer),
            self._journal,
            self._ports.random_bytes,
            Timers(self._ports.channels.put),
            slices,
            self._metrics,
            self._ports.now_ms,
            self._ports.wait_for_features,
            self._standby.take if self._standby is not None else _no_mirror,
            cause,
        )
        self._journal.controller_epoch = epoch.epoch
        self._journal.line(cause, "elected", epoch_version=epoch.version)
        self._observer.on_term_begin(self.term)

    async def maybe_resign(self, cause: str) -> ControllerZnode | None:
        """Read `/controller`, and resign if it no longer belongs to this node's session; returns what was read."""
        store = self._current_store()
        holder = await store.read_controller(watch=True)
        if self.term is not None and (holder is None or not self._is_ours(holder, store)):
            who = "nobody" if holder is None else f"broker {holder.broker}"
            await self.resign(cause, f"{who} is controller now")
        return holder

    async def resign_after_refused_write(self, cause: str) -> ControllerZnode | None:
        """Resign after a write failed because the controller epoch changed; returns the `/controller` that was read.

        If `/controller` still belongs to this session, another client changed `/controller_epoch`: every later write
        would fail, too. The znode is deleted, so that a controller is elected in a new epoch.
        """
        holder = await self.maybe_resign(cause)
        if self.term is not None and holder is not None:
            await self.resign(cause, f"another client changed {CONTROLLER_EPOCH}")
            await self._delete_znode_without_term(self._current_store(), holder, cause)
        return holder

    async def resign_and_delete_znode(self, cause: str, why: str) -> None:
        """Resign, and delete `/controller` if it is still ours, so that another node is elected."""
        store = self._current_store()
        fenced = self.term.store if self.term else None
        try:
            holder = await store.read_controller()
        finally:
            await self.resign(cause, why)
        if holder is None or not self._is_ours(holder, store):
            return
        try:
            if fenced is not None:
                await fenced.delete_controller()
            else:
                await self._delete_znode_without_term(store, holder, cause)
        except ControllerMoved:
            self._journal.line(cause, "moved", why="another controller was elected meanwhile")

    async def resign(self, cause: str, why: str) -> None:
        """End the term: drop its context, timers and queued requests. Does nothing if this node is not controller."""
        term, self.term = self.term, None
        if term is None:
            return
        term.batch.clear()
        term.timers.close()
        await term.channels.close()
        term.slices.close()
        self._observer.on_term_end(term)
        self._journal.line(cause, "resigned", why=why)
        self._journal.flush()
        self._journal.controller_epoch = 0
        if self._standby is not None:
            self._standby.resume()
        freeing = asyncio.get_running_loop().create_task(
            free_context(term.context, self._ports.make_slices()), name="free-ended-term"
        )
        self._freeing[freeing] = None
        freeing.add_done_callback(self._freeing.pop)

    async def _delete_znode_without_term(self, store: Store, holder: ControllerZnode, cause: str) -> None:
        """Delete the `/controller` that this session owns while this node has no term."""
        self._journal.line(
            cause,
            "abandoned",
            why="this session owns /controller, but this node is not the active controller: the znode is deleted",
        )
        try:
            await store.delete_controller_version(holder.version)
        except (NoNode, BadVersion):
            self._journal.line(cause, "moved", why="/controller changed meanwhile")

    def _is_ours(self, holder: ControllerZnode, store: Store) -> bool:
        """Whether this node's current ZooKeeper session created this `/controller`."""
        same_session = holder.owner_session == store.session_id
        return holder.broker == self._settings.broker_id and same_session and not holder.is_kraft

    def _current_store(self) -> Store:
        """The store of the current ZooKeeper session."""
        assert self._store is not None, "use_session is called before"
        return self._store
