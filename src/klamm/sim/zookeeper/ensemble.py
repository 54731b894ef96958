"""The state that all model servers share: order of writes, sessions, leader. Source: ZooKeeperServer, Leader.

The ensemble commits each write at once. Each server applies it later, so a server that lags answers stale reads, as in
ZooKeeper. Sessions expire by the loop's time, in ticks, and only while there is a leader. Without a leader writes wait,
or their connections break.
"""

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from klamm.runtime.clock import Clock
from klamm.runtime.randomness import Rng
from klamm.sim.zookeeper.rules import Identity, RequestRejected, plan_acl_change, plan_change
from klamm.sim.zookeeper.tree import Change, CreateChange, DeleteChange, Transaction, Tree
from klamm.zk.acl import Acl
from klamm.zk.errors import ZkCode
from klamm.zk.operations import Op, Result

PASSWORD_BYTES: Final = 16


class InjectedFailure(Enum):
    """How an injected fault lets a write or request fail: its connection breaks, or ZooKeeper answers NoAuth."""

    BEFORE = "before"  # the connection breaks: the write never happened
    AFTER = "after"  # it breaks: it happened; the answer is lost
    REFUSED = "refused"  # NoAuth is the answer for its last operation: nothing of it happened
    FAILED = "failed"  # NoAuth for its first: where that checks the controller's epoch, for all of it


DISCONNECTS: Final = (InjectedFailure.BEFORE, InjectedFailure.AFTER)
REFUSALS: Final = (InjectedFailure.REFUSED, InjectedFailure.FAILED)


class SessionConnection(Protocol):
    """The connection that currently serves a session."""

    def session_ended(self) -> None:
        """Tell the client that its session has ended, and close the connection."""

    def send_invalid_frame(self, frame: bytes) -> None:
        """Send a frame that no real server sends."""


class Member(Protocol):
    """A server, as the ensemble sees it."""

    is_up: bool
    is_cut_off: bool

    def receive_transaction(self, transaction: Transaction) -> None:
        """Receive the next committed transaction, to apply it now or later."""

    def on_leader_reachable(self) -> None:
        """Called when a leader is reachable: apply missed transactions and serve the waiting requests."""

    def on_leader_lost(self) -> None:
        """Called when no leader is reachable: disconnect all clients."""


@dataclass(slots=True, eq=False)
class SessionRecord:
    """A session, its timeout and the connection that serves it."""

    id: int
    timeout_ms: int
    password: bytes
    expires_at: float = 0.0
    holder: SessionConnection | None = None


@dataclass(frozen=True, slots=True)
class EnsembleSettings:
    """Timing and limits, named as in zoo.cfg where they exist there."""

    tick_ms: int = 2_000
    min_session_ms: int = 4_000
    max_session_ms: int = 40_000
    max_packet_bytes: int = 0xFFFFF
    election_ms: int = 500
    """From the moment that a majority finds itself without a leader."""
    sync_limit_ticks: int = 2
    """How long servers that cannot reach each other believe that this will pass (syncLimit)."""


Committed = Callable[[Transaction, Sequence[Op]], None]


class Ensemble:
    """The shared state of a model ensemble: create it, then its servers; call `start` within a running loop."""

    def __init__(self, clock: Clock, rng: Rng, settings: EnsembleSettings | None = None) -> None:
        self._clock = clock
        self._rng = rng
        self.settings = settings or EnsembleSettings()
        self.tree = Tree()
        self.sessions: dict[int, SessionRecord] = {}
        self.servers: list[Member] = []
        self.leader: Member | None = None
        self.has_quorum = False
        """Whether writes are decided now."""
        self._timer_context = contextvars.copy_context()
        """Where our timers belong: a write may be decided within the step of a client that dies right after."""
        self._next_session = 0x1000
        self._ticker: asyncio.TimerHandle | None = None
        self._election: asyncio.TimerHandle | None = None
        self.on_commit: Committed = lambda transaction, ops: None
        """Told of every write that changed something, after the fact, with the operations that asked for it."""
        self.on_write: Callable[[int, Sequence[Op]], InjectedFailure | None] = lambda session, ops: None
        """Asked before each write of a session: a fault, or none."""
        self.on_read: Callable[[int, Callable[[], Sequence[str]]], InjectedFailure | None] = lambda session, paths: None
        """Asked before each read of a session, which may set a watch: a fault that breaks the connection, or none."""
        self.may_answer_connect: Callable[[int], bool] = lambda session: True
        """Asked before a client is told of its session: false, and the connection breaks instead (KAFKA-14845)."""
        self.ephemerals_outlive_session_s: Callable[[], float] = lambda: 0.0
        """How long ephemeral znodes outlive a session that ends now (ZOOKEEPER-2985)."""

    def start(self) -> None:
        """Start to expire sessions."""
        self._set_ticker()

    def _set_ticker(self) -> None:
        """Set a timer for the next tick at which a session could expire."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        silent = min((s.expires_at for s in self.sessions.values()), default=float("inf"))
        due = min(silent, now + self.settings.min_session_ms / 1000)
        self._ticker = loop.call_at(
            due if due > now else now + self.settings.tick_ms / 1000, self._tick, context=self._timer_context
        )

    def stop(self) -> None:
        """Cancel all timers."""
        for timer in (self._ticker, self._election):
            if timer is not None:
                timer.cancel()

    # ---- servers

    def join(self, server: Member) -> None:
        """Add a server to the ensemble; the first one becomes the leader."""
        self.servers.append(server)
        self.leader = self.leader or server
        self.has_quorum = True

    def _quorum(self) -> list[Member]:
        """The servers that can reach each other, if they are a majority; otherwise none."""
        reachable = [s for s in self.servers if s.is_up and not s.is_cut_off]
        return reachable if 2 * len(reachable) > len(self.servers) else []

    def on_server_partitioned(self) -> None:
        """Called when a server lost its links to the others; the quorum is updated after the sync limit."""
        self.has_quorum = self.leader in self._quorum()
        patience_s = self.settings.sync_limit_ticks * self.settings.tick_ms / 1000
        asyncio.get_running_loop().call_later(patience_s, self.update_quorum, context=self._timer_context)

    def update_quorum(self) -> None:
        """Recompute the quorum and the leader after a server stopped, started or was reconnected."""
        together = self._quorum()
        self.has_quorum = self.leader in together
        if not self.has_quorum:
            self.leader = None
        for server in self.servers:
            if self.has_quorum and server in together:
                server.on_leader_reachable()
            else:
                server.on_leader_lost()
        if self.leader is None and together and self._election is None:
            election_s = self.settings.election_ms / 1000
            self._election = asyncio.get_running_loop().call_later(election_s, self._elect, context=self._timer_context)

    def _elect(self) -> None:
        """Elect a leader, and restart the timeouts of all sessions."""
        self._election = None
        together = self._quorum()
        if self.leader is None and together:
            self.leader = together[0]
            for session in self.sessions.values():
                self.touch(session)
            self.update_quorum()

    # ---- sessions

    def open_session(self, timeout_ms: int) -> tuple[SessionRecord, int]:
        """Open a session; return it and the zxid at which it exists."""
        granted = max(self.settings.min_session_ms, min(timeout_ms, self.settings.max_session_ms))
        self._next_session += 1
        session = SessionRecord(self._next_session, granted, self._rng.randbytes(PASSWORD_BYTES))
        self.sessions[session.id] = session
        self.touch(session)
        return session, self._commit(session.id, []).zxid

    def resume(self, session: int, password: bytes, holder: SessionConnection) -> SessionRecord | None:
        """Move a session to this connection; None if it has ended or the password is wrong."""
        record = self.sessions.get(session)
        if record is None or record.password != password:
            return None
        record.holder = holder
        self.touch(record)
        return record

    def touch(self, session: SessionRecord) -> None:
        """Extend the session: it expires at the end of the tick in which its timeout falls."""
        tick_s = self.settings.tick_ms / 1000
        due = asyncio.get_running_loop().time() + session.timeout_ms / 1000
        session.expires_at = (due // tick_s + 1) * tick_s

    def end_session(self, session: int) -> int:
        """Close or expire a session; return the zxid of the transaction that removes its ephemeral znodes."""
        record = self.sessions.pop(session, None)
        if record is None:
            return self.tree.zxid
        ephemerals_outlive_session_s = self.ephemerals_outlive_session_s()
        if ephemerals_outlive_session_s:
            loop = asyncio.get_running_loop()
            loop.call_later(ephemerals_outlive_session_s, self.remove_ephemerals, session, context=self._timer_context)
            transaction = self._commit(session, [])
        else:
            transaction = self.remove_ephemerals(session)
        if record.holder is not None:
            record.holder.session_ended()
        return transaction.zxid

    def remove_ephemerals(self, session: int) -> Transaction:
        """Remove the ephemeral znodes of a session."""
        return self._commit(session, [DeleteChange(path) for path in self.tree.ephemerals.get(session, {})])

    def _tick(self) -> None:
        """Expire sessions whose timeout is over, if there is a quorum."""
        if self.has_quorum:
            now = asyncio.get_running_loop().time()
            for session in [s for s in self.sessions.values() if s.expires_at <= now]:
                self.end_session(session.id)
        self._set_ticker()

    # ---- writes

    def write(self, session: int, ops: Sequence[Op], who: Sequence[Identity]) -> tuple[int, list[Result]]:
        """Commit all operations or none; return the zxid and the result of each."""
        zxid, time_ms = self.tree.zxid + 1, self._clock.now_ms()
        results: list[Result] = []
        changes: list[Change] = []
        undo: list[Callable[[], None]] = []
        for op in ops:
            try:
                change = plan_change(self.tree, op, session, who)
            except RequestRejected as refused:
                for step in reversed(undo):
                    step()
                rest = [Result(ZkCode.RUNTIME_INCONSISTENCY)] * (len(ops) - len(results) - 1)
                results = [*[Result(ZkCode.OK)] * len(results), Result(refused.code), *rest]
                return self._commit(session, []).zxid, results
            if change is None:
                results.append(Result(ZkCode.OK))
                continue
            undo.append(self.tree.undo_function(change))
            node = self.tree.apply(change, zxid, time_ms)
            changes.append(change)
            stat = None if isinstance(change, DeleteChange) else node.stat()
            results.append(Result(ZkCode.OK, change.path if isinstance(change, CreateChange) else None, stat))
        self._publish(Transaction(zxid, time_ms, session, changes), ops)
        return zxid, results

    def refuse(self, session: int, ops: Sequence[Op], number: int) -> tuple[int, list[Result]]:
        """Answer NoAuth for the operation with this index, so that nothing of the write happens."""
        rest = [Result(ZkCode.RUNTIME_INCONSISTENCY)] * (len(ops) - number - 1)
        return self._commit(session, []).zxid, [*[Result(ZkCode.OK)] * number, Result(ZkCode.NO_AUTH), *rest]

    def write_acl(
        self, session: int, path: str, acl: Sequence[Acl], version: int, who: Sequence[Identity]
    ) -> tuple[int, Result]:
        """Set the ACL of a znode; return the zxid and the result."""
        try:
            change = plan_acl_change(self.tree, path, acl, version, who)
        except RequestRejected as refused:
            return self._commit(session, []).zxid, Result(refused.code)
        transaction = self._commit(session, [change])
        node = self.tree.get(path)
        assert node is not None
        return transaction.zxid, Result(ZkCode.OK, None, node.stat())

    def _commit(self, session: int, changes: Sequence[Change]) -> Transaction:
        """Apply these changes as one transaction."""
        transaction = Transaction(self.tree.zxid + 1, self._clock.now_ms(), session, changes)
        for change in changes:
            self.tree.apply(change, transaction.zxid, transaction.time_ms)
        self._publish(transaction, ())
        return transaction

    def _publish(self, transaction: Transaction, ops: Sequence[Op]) -> None:
        """Send a transaction to all servers and report it."""
        self.tree.zxid = transaction.zxid
        for server in self.servers:
            server.receive_transaction(transaction)
        if transaction.changes:
            self.on_commit(transaction, ops)
