"""Keeps a mirror of the cluster's topics and partitions while this node is not controller, for a fast failover.

The election takes the mirror (`take`); `resume` is called when the term has ended. A mirror that is lost is read again.
A node without a current mirror reads everything at its election, as if it had never had one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from klamm.controller.mirror import Mirror, MirrorLost, MirrorSession
from klamm.controller.settings import ControllerSettings
from klamm.model.errors import KlammError
from klamm.runtime.time_slices import Slices
from klamm.telemetry.journal import Journal
from klamm.telemetry.meters import Reading
from klamm.zk.errors import Unimplemented

START_DELAY_S: Final = 1.0
"""The pause before a mirror is read: at its start, and after a term, a node has more urgent work."""
RETRY_BACKOFF_S: Final = 5.0
"""The pause before a lost mirror is read again."""
UNSUPPORTED_BACKOFF_S: Final = 600.0
"""The pause after a ZooKeeper server without persistent watches: the ensemble may be upgraded."""
CHOICE_INTERVAL_S: Final = 10.0
"""How often a node looks whether it is still among those that keep a mirror."""
GIVE_WAY_S: Final = 0.1
"""How long a node without a current mirror waits before it takes part in the election after a controller is gone."""
TAKE_TIMEOUT_S: Final = 2.0
"""How long an election waits for the newest notices; then it reads everything."""

OpenSession = Callable[[], Awaitable[MirrorSession]]


@dataclass(frozen=True, slots=True)
class StandbyPorts:
    """What a standby needs from the node."""

    open_session: OpenSession
    """Opens a ZooKeeper session for a mirror. Raises ZkError."""
    is_chosen: Callable[[], bool]
    """Whether this node keeps a mirror now."""


class Standby:
    """The standby of one node: `start` it once the node takes part in elections, `stop` it with the node."""

    def __init__(
        self,
        ports: StandbyPorts,
        make_slices: Callable[[], Slices],
        journal: Journal,
        settings: ControllerSettings,
        on_unexpected_error: Callable[[Exception], None],
    ) -> None:
        self._ports = ports
        self._make_slices = make_slices
        self._journal = journal
        self._settings = settings
        self._on_unexpected_error = on_unexpected_error
        self._mirror: Mirror | None = None
        self.is_current = False
        """Whether the mirror has been read, and is followed."""
        self.losses = 0
        """Mirrors that were lost."""
        self._journalled_loss = ""
        """The reason of the last loss in the journal; empty once a mirror was complete after it."""
        self._reads_before = 0
        """Znodes that earlier mirrors read."""
        self._may_follow = asyncio.Event()
        self._may_follow.set()
        self._task: asyncio.Task[None] | None = None
        self._choice: asyncio.TimerHandle | None = None

    @property
    def mirror(self) -> Mirror | None:
        """Return the copy of ZooKeeper's topics and partition states that this node keeps now; None without one."""
        return self._mirror

    @property
    def reads(self) -> int:
        """Return the number of znodes that this node has read so far as a standby of the controller."""
        return self._reads_before + (self._mirror.reads if self._mirror is not None else 0)

    # ---- the node's life

    def start(self) -> None:
        """Begin to keep a copy of all topics and partition states (a mirror) while this node is chosen as a standby."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="controller-standby")
        self._check_choice()

    async def stop(self) -> None:
        """Drop the mirror, the copy of ZooKeeper's topics, and close its session."""
        if self._choice is not None:
            self._choice.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # ---- the election

    async def give_way(self) -> None:
        """Wait a moment before an election if this node has no current mirror, so that a node with one is elected."""
        if not self.is_current:
            await asyncio.sleep(GIVE_WAY_S)

    async def take(self, zxid: int) -> Mirror | None:
        """Return the mirror, with all changes up to this zxid, for use by the new controller; None without one.

        No other mirror is kept until `resume`.
        """
        self._may_follow.clear()
        mirror, is_current = self._mirror, self.is_current
        if mirror is None or mirror.is_taken:
            return None
        if not is_current:
            mirror.lose("this node became controller before everything was read")
            return None
        mirror.is_taken = True
        try:
            async with asyncio.timeout(TAKE_TIMEOUT_S):
                await mirror.unless_lost(mirror.finish(zxid))
        except (KlammError, TimeoutError) as error:
            mirror.lose(str(error) or f"the notices of all changes did not arrive within {TAKE_TIMEOUT_S:g} s")
            mirror.is_taken = False
            if self._mirror is not mirror:  # nobody keeps it any more
                await mirror.discard()
            return None
        return mirror

    def resume(self) -> None:
        """Keep a mirror again, because this node is no longer controller."""
        self._may_follow.set()

    # ---- inside

    def _check_choice(self) -> None:
        """Drop the mirror if this node is no longer one of the brokers chosen as standby, and no election takes it."""
        mirror = self._mirror
        if mirror is not None and not mirror.is_taken and not self._ports.is_chosen():
            mirror.lose("other nodes are chosen to keep one")
        self._choice = asyncio.get_running_loop().call_later(CHOICE_INTERVAL_S, self._check_choice)

    async def _run(self) -> None:
        """Keep a mirror, and after each loss another one."""
        await asyncio.sleep(START_DELAY_S)
        while True:
            await self._may_follow.wait()
            try:
                pause_s = await self._keep_mirror() if self._ports.is_chosen() else CHOICE_INTERVAL_S
            except Exception as error:  # our own mistake: the node continues without a mirror
                self._on_unexpected_error(error)
                self._journal_line("failed", what="keeping a mirror", why=repr(error))
                pause_s = UNSUPPORTED_BACKOFF_S
            await asyncio.sleep(pause_s)

    async def _keep_mirror(self) -> float:
        """Read and follow a mirror until it is lost or taken; returns the pause before the next one."""
        try:
            session = await self._ports.open_session()
        except KlammError as error:
            self._journal_loss(str(error))
            return RETRY_BACKOFF_S
        if not self._may_follow.is_set():  # an election came before the session: its term needs no mirror
            await session.close()
            return START_DELAY_S
        slices = self._make_slices()
        mirror = self._mirror = Mirror(session, slices, self._settings)
        try:
            await mirror.unless_lost(mirror.load())
            self._on_current(mirror)
            await mirror.unless_lost(mirror.follow())
        except Unimplemented:
            self._on_lost(mirror, "ZooKeeper servers before 3.6 have no persistent watches")
            return UNSUPPORTED_BACKOFF_S
        except KlammError as error:
            self._on_lost(mirror, str(error) if isinstance(error, MirrorLost) else mirror.why_lost or str(error))
        finally:
            self.is_current = False
            is_taken, self._mirror = mirror.is_taken, None
            self._reads_before += mirror.reads
            await session.close()
            if not is_taken:
                await mirror.discard()
        return START_DELAY_S if is_taken else RETRY_BACKOFF_S

    def _on_current(self, mirror: Mirror) -> None:
        """Write to the journal that the mirror has read everything and can be used after an election."""
        self.is_current = True
        self._journalled_loss = ""
        context = mirror.context
        facts = {"topic_count": len(context.topics), "partition_count": context.partition_count}
        self._journal_line("standby", **facts)

    def _on_lost(self, mirror: Mirror, why: str) -> None:
        """Write to the journal why the mirror cannot be used any more."""
        mirror.lose(why)
        self.losses += 1
        self._journal_loss(why)

    def _journal_loss(self, why: str) -> None:
        """Write to the journal why this node has no mirror, unless the line before has the same reason."""
        if why != self._journalled_loss:
            self._journalled_loss = why
            self._journal_line("standby", lost=why)

    def _journal_line(self, kind: str, **facts: object) -> None:
        """Write a line with a cause of its own to the journal."""
        self._journal.line(self._journal.event("Standby"), kind, **facts)
        self._journal.flush()


def standby_readings(standby: Standby | None) -> Iterator[Reading]:
    """The metrics of a node's standby; zeros for a node without one."""
    mirror = standby.mirror if standby is not None else None
    yield Reading("klamm_controller_standby_current", int(standby is not None and standby.is_current))
    yield Reading("klamm_controller_standby_partitions", mirror.context.partition_count if mirror else 0)
    yield Reading("klamm_controller_standby_changed_znodes", mirror.changed_count if mirror else 0)
    yield Reading("klamm_controller_standby_lag_ms", round(mirror.lag_s * 1000) if mirror else 0)
    yield Reading("klamm_controller_standby_reads", standby.reads if standby is not None else 0)
    yield Reading("klamm_controller_standby_losses", standby.losses if standby is not None else 0)
