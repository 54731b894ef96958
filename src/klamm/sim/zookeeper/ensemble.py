"""What all servers agree on: the order of writes, and who has a session. Source: ZooKeeperServer, SessionTrackerImpl.

The ensemble decides each write at once and for good; each server applies it when it comes to it, so a server that lags
answers reads from the past, as ZooKeeper's do. Sessions end by the loop's time, in ticks, whatever a server does.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from klamm.runtime.clock import Clock
from klamm.runtime.randomness import Dice
from klamm.sim.zookeeper.rules import Identity, Refused, plan, plan_acl
from klamm.sim.zookeeper.tree import Change, CreateChange, DeleteChange, Transaction, Tree
from klamm.zk.acl import Acl
from klamm.zk.errors import ZkCode
from klamm.zk.operations import Op, Result

PASSWORD_BYTES: Final = 16


class Loss(Enum):
    """A connection that breaks around a write."""

    BEFORE = "before"  # the write never happened
    AFTER = "after"  # it happened; the answer is lost


class Holder(Protocol):
    """The connection that speaks for a session now."""

    def session_ended(self) -> None: ...
    def replaced(self) -> None: ...


class Follower(Protocol):
    """A server, told of each transaction in order."""

    def learn(self, transaction: Transaction) -> None: ...


@dataclass(slots=True, eq=False)
class SessionRecord:
    id: int
    timeout_ms: int
    password: bytes
    expires_at: float = 0.0
    holder: Holder | None = None


@dataclass(frozen=True, slots=True)
class EnsembleSettings:
    tick_ms: int = 2_000
    min_session_ms: int = 4_000
    max_session_ms: int = 40_000
    max_packet_bytes: int = 0xFFFFF


Committed = Callable[[Transaction, Sequence[Op]], None]


class Ensemble:
    """Make one, then servers of it; `start` it within a running loop."""

    def __init__(self, clock: Clock, dice: Dice, settings: EnsembleSettings | None = None) -> None:
        self._clock = clock
        self._dice = dice
        self.settings = settings or EnsembleSettings()
        self.tree = Tree()
        self.sessions: dict[int, SessionRecord] = {}
        self._servers: list[Follower] = []
        self._next_session = 0x1000
        self._ticker: asyncio.TimerHandle | None = None
        self.on_commit: Committed = lambda transaction, ops: None
        """Told of every write that changed something, after the fact, with the operations that asked for it."""
        self.on_write: Callable[[int, Sequence[Op]], Loss | None] = lambda session, ops: None
        """Asked before each write of a session: a fault, or none."""

    def join(self, server: Follower) -> None:
        self._servers.append(server)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._ticker = loop.call_later(self.settings.tick_ms / 1000, self._tick)

    def stop(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()

    # ---- sessions

    def open_session(self, timeout_ms: int) -> tuple[SessionRecord, int]:
        """A new one, and the zxid from which on it exists."""
        granted = max(self.settings.min_session_ms, min(timeout_ms, self.settings.max_session_ms))
        self._next_session += 1
        session = SessionRecord(self._next_session, granted, self._dice.randbytes(PASSWORD_BYTES))
        self.sessions[session.id] = session
        self.touch(session)
        return session, self._commit(session.id, []).zxid

    def resume(self, session: int, password: bytes, holder: Holder) -> SessionRecord | None:
        """None where it has ended or is somebody else's."""
        record = self.sessions.get(session)
        if record is None or record.password != password:
            return None
        earlier, record.holder = record.holder, holder
        if earlier is not None and earlier is not holder:
            earlier.replaced()
        self.touch(record)
        return record

    def touch(self, session: SessionRecord) -> None:
        """It was heard of: it lives to the end of the tick in which its time-out falls."""
        tick_s = self.settings.tick_ms / 1000
        due = asyncio.get_running_loop().time() + session.timeout_ms / 1000
        session.expires_at = (due // tick_s + 1) * tick_s

    def end_session(self, session: int) -> int:
        """Closed or expired: its ephemeral znodes go in one transaction, whose zxid this is."""
        record = self.sessions.pop(session, None)
        if record is None:
            return self.tree.zxid
        gone: list[Change] = [DeleteChange(path) for path in self.tree.ephemerals.get(session, {})]
        transaction = self._commit(session, gone)
        if record.holder is not None:
            record.holder.session_ended()
        return transaction.zxid

    def _tick(self) -> None:
        now = asyncio.get_running_loop().time()
        for session in [s for s in self.sessions.values() if s.expires_at <= now]:
            self.end_session(session.id)
        self.start()

    # ---- writes

    def write(self, session: int, ops: Sequence[Op], who: Sequence[Identity]) -> tuple[int, list[Result]]:
        """All or none; a refused write has a zxid, too."""
        zxid, time_ms = self.tree.zxid + 1, self._clock.now_ms()
        results: list[Result] = []
        changes: list[Change] = []
        undo: list[Callable[[], None]] = []
        for op in ops:
            try:
                change = plan(self.tree, op, session, who)
            except Refused as refused:
                for step in reversed(undo):
                    step()
                rest = [Result(ZkCode.RUNTIME_INCONSISTENCY)] * (len(ops) - len(results) - 1)
                results = [*[Result(ZkCode.OK)] * len(results), Result(refused.code), *rest]
                return self._commit(session, []).zxid, results
            if change is None:
                results.append(Result(ZkCode.OK))
                continue
            undo.append(self.tree.undo_of(change))
            stat, _ = self.tree.apply(change, zxid, time_ms)
            changes.append(change)
            results.append(Result(ZkCode.OK, change.path if isinstance(change, CreateChange) else None, stat))
        self._publish(Transaction(zxid, time_ms, session, changes), ops)
        return zxid, results

    def write_acl(
        self, session: int, path: str, acl: Sequence[Acl], version: int, who: Sequence[Identity]
    ) -> tuple[int, Result]:
        try:
            change = plan_acl(self.tree, path, acl, version, who)
        except Refused as refused:
            return self._commit(session, []).zxid, Result(refused.code)
        transaction = self._commit(session, [change])
        node = self.tree.get(path)
        assert node is not None
        return transaction.zxid, Result(ZkCode.OK, None, node.stat())

    def _commit(self, session: int, changes: Sequence[Change]) -> Transaction:
        transaction = Transaction(self.tree.zxid + 1, self._clock.now_ms(), session, changes)
        for change in changes:
            self.tree.apply(change, transaction.zxid, transaction.time_ms)
        self._publish(transaction, ())
        return transaction

    def _publish(self, transaction: Transaction, ops: Sequence[Op]) -> None:
        self.tree.zxid = transaction.zxid
        for server in self._servers:
            server.learn(transaction)
        if transaction.changes:
            self.on_commit(transaction, ops)
