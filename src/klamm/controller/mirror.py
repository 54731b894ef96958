"""A context of topics and partition states that one ZooKeeper session keeps equal to their znodes.

It is read once, in the order of a failover, and followed by a watch of `/brokers/topics` and all that is below. A
notice carries no data: its path is noted and read again, at most once per `FOLLOW_INTERVAL_S`. ZooKeeper sends each
notice before an answer that shows the change, therefore a path is removed from the noted ones before it is read: a
change during the read notes it again. Nothing is repaired: after a lost connection, or with too many noted paths, the
mirror is lost (`lost`), and its owner starts another one.

The mirror holds what grows with the number of partitions. Brokers, requests of operators and pending deletions are few,
and are read at the election.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from klamm.controller.context import ControllerContext
from klamm.controller.decisions.changes import is_another_topic
from klamm.controller.loading import add_partitions, add_topics, free_context, put_states, remove_topics
from klamm.controller.settings import ControllerSettings
from klamm.controller.state_encoder import StateEncoder
from klamm.controller.states import INITIAL_REPLICA_STATE
from klamm.controller.steps import READ_PARTITIONS, READ_TOPICS
from klamm.controller.topic import Partition, Topic
from klamm.model.errors import KlammError
from klamm.runtime.time_slices import Slices
from klamm.zk.fenced import chunks
from klamm.zk.partition_states import read_states
from klamm.zk.port import ZooKeeperClient
from klamm.zk.states import SessionState
from klamm.zk.store import Store
from klamm.zk.watches import WatchEvent
from klamm.zk.znodes import TOPICS, TopicZnode

FOLLOW_INTERVAL_S: Final = 0.5
"""The pause in which notices of the same znode become one read, and of others one request. It is most of the mirror's
lag; an election reads what is noted, at most some hundred states."""
PAUSE_S: Final = 0.02
"""The pause after each chunk of reads: about 50,000 states are read in a second, so that brokers are not disturbed."""
_MAX_DIGITS: Final = 10
"""The digits of the largest partition number, and so of the names of partition znodes that Kafka writes."""
MAX_CHANGED_PATHS: Final = 100_000
"""Noted paths at most; with more, reading everything again costs less than to remember them."""


class MirrorSession(ZooKeeperClient, Protocol):
    """A ZooKeeper session that only the mirror uses: its notices and answers delay nobody else's."""

    on_state: Callable[[SessionState], None]

    async def watch_subtree(self, path: str) -> None:
        """Watch the znode and all znodes below it until the connection ends. Raises Unimplemented."""

    async def close(self) -> None:
        """End the session."""


class MirrorLost(KlammError):
    """The mirror may differ from ZooKeeper, and must not be used."""


class ChangedPaths(NamedTuple):
    """The topics and partitions that noted paths belong to."""

    topics: list[str]
    partitions: list[tuple[str, int]]


class Mirror:
    """One mirror: `load`, then `follow` until it is lost, or until a new controller has `finish`ed it."""

    def __init__(self, session: MirrorSession, slices: Slices, settings: ControllerSettings) -> None:
        self.context = ControllerContext(0)
        self.slices = slices
        self.mzxids: dict[str, int] = {}
        """The zxid of the last change of each topic's znode, as of the last read."""
        self.lost = asyncio.Event()
        self.why_lost = ""
        self.reads = 0
        """Znodes read since `load` was called."""
        self._session = session
        self._store = Store(session)
        self._uses_topic_ids = settings.uses_topic_ids
        self._encoder = StateEncoder(settings)
        self._changed: dict[str, float] = {}
        """The paths that wait to be read again, the oldest notice first, with the loop's time of that notice."""
        self._reading_since: float | None = None
        """The time of the oldest notice among the paths that are being read."""
        self._has_changes = asyncio.Event()
        self._without_state: dict[Partition, None] = {}
        """Partitions whose state znode does not exist or cannot be read: a new controller reads it once more."""
        self.is_taken = False
        """Whether the context belongs to an election, which frees it if the mirror turns out to be lost."""
        self._is_reading = asyncio.Lock()
        self._is_finished = False
        session.on_watch = self._on_watch
        session.on_state = self._on_state

    @property
    def changed_count(self) -> int:
        """Return the number of changed znodes that this copy of ZooKeeper has still to read again."""
        return len(self._changed)

    @property
    def lag_s(self) -> float:
        """Return how many seconds this copy is behind: the age of the oldest known change that it lacks, or 0."""
        waiting = next(iter(self._changed.values()), None)
        noted_at = [at for at in (waiting, self._reading_since) if at is not None]
        return asyncio.get_running_loop().time() - min(noted_at) if noted_at else 0.0

    async def load(self) -> None:
        """Watch and read the znodes of all topics and partitions. Raises ZkError; Unimplemented below ZooKeeper 3.6."""
        await self._session.watch_subtree(TOPICS)
        for names in chunks(await self._store.list_topics(), READ_TOPICS):
            await self._read_again(names, [])
            await asyncio.sleep(PAUSE_S)

    async def follow(self) -> None:
        """Read each znode that changes, so that the copy stays current, until `finish` is called. Raises ZkError."""
        while not self._is_finished:
            await self._has_changes.wait()
            await asyncio.sleep(FOLLOW_INTERVAL_S)
            self._has_changes.clear()
            for paths in chunks(list(self._changed), READ_PARTITIONS):
                async with self._is_reading:
                    if self._is_finished:
                        return
                    await self._read_changed(paths)
                await asyncio.sleep(PAUSE_S)
        async with self._is_reading:
            return  # not before `finish` has its answer: the session is closed then

    async def finish(self, zxid: int) -> None:
        """End `follow`, and wait for the notices of all changes up to this zxid. Raises MirrorLost, ZkError.

        What they note is not read any more: see `unread_partitions`. Topics are compared by their mzxid.
        """
        async with self._is_reading:
            self._is_finished = True
            self._has_changes.set()
            await self._session.sync(TOPICS)
        if self._session.seen_zxid < zxid:
            self.lose(f"ZooKeeper server {self._session.server} answered sync without the newest changes")
        if self.lost.is_set():
            raise MirrorLost(self.why_lost)
        self._session.on_watch = _ignore  # what is noted stays noted when the session is closed
        self._session.on_state = _ignore

    async def unless_lost(self, work: Coroutine[Any, Any, None]) -> None:
        """Await the work, at most until this copy is unusable. Raises MirrorLost then, and what the work raises."""
        task, lost = asyncio.ensure_future(work), asyncio.ensure_future(self.lost.wait())
        try:
            await asyncio.wait((task, lost), return_when=asyncio.FIRST_COMPLETED)
            if self.lost.is_set() and not (task.done() and task.exception()):
                raise MirrorLost(self.why_lost)
            await task  # its failure may be the cause of the loss: Unimplemented, which also ends the connection
        finally:
            task.cancel()
            lost.cancel()
            await asyncio.gather(task, lost, return_exceptions=True)

    async def unread_partitions(self) -> list[Partition]:
        """The partitions whose state has to be read again: changed ones, and those without a readable state."""
        known = self.context.partition
        found: dict[Partition, None] = {}
        async for p in self.slices.each(self._without_state):
            if known(p.topic, p.partition) is p:
                found[p] = None
        async for paths in self.slices.over(self._changed):
            for topic, number in changed_by(paths).partitions:
                if (partition := known(topic, number)) is not None:
                    found[partition] = None
        return list(found)

    async def discard(self) -> None:
        """Free the topics and partitions of this copy in pieces: freeing them at once would hold the event loop."""
        context, self.context = self.context, ControllerContext(0)
        self._changed, self._without_state = {}, {}
        await free_context(context, self.slices)

    # ---- notices

    def _on_watch(self, event: WatchEvent) -> None:
        """Remember the path of a changed znode, to read it again.

        Too many paths, and changes of `/brokers/topics` itself, make the copy unusable.
        """
        if event.path == TOPICS:
            self.lose(f"{TOPICS} itself changed")
        elif event.path in self._changed:
            return
        elif len(self._changed) >= MAX_CHANGED_PATHS:
            self.lose(f"{len(self._changed)} znodes changed and were not read again yet")
        else:
            self._changed[event.path] = asyncio.get_running_loop().time()
            self._has_changes.set()

    def _on_state(self, state: SessionState) -> None:
        """Make the copy unusable when the session loses its connection, because the watch ended with it."""
        if state is not SessionState.CONNECTED:
            self.lose(f"the ZooKeeper session is {state}")

    def lose(self, why: str) -> None:
        """Mark this mirror of the context as unusable, with the reason; only the first reason is kept."""
        if not self.lost.is_set():
            self.why_lost = why
            self._changed.clear()
            self.lost.set()

    # ---- reads

    async def _read_changed(self, paths: Sequence[str]) -> None:
        """Read the topics and partition states at these changed paths again; a failed read makes the copy unusable."""
        now = asyncio.get_running_loop().time()
        self._reading_since = min(self._changed.pop(path, now) for path in paths)
        try:
            await self._read_again(*changed_by(paths))
        except BaseException as error:
            self.lose(f"changed znodes could not be read: {error!r}")
            raise
        self._reading_since = None

    async def _read_again(self, topics: Sequence[str], partitions: Iterable[tuple[str, int]]) -> None:
        """Read these topics, then the states of these partitions and of all that the topics gained."""
        unread = dict.fromkeys(await self._read_topics(topics))
        for topic, number in partitions:
            if (partition := self.context.partition(topic, number)) is not None:
                unread[partition] = None
        for chunk in chunks(unread, READ_PARTITIONS):
            self.reads += len(chunk)
            read = await read_states(self._session, chunk)
            await put_states(self.context, self.slices, read)
            self._encoder.prepare(read.found)
            for p in read.found:
                self._without_state.pop(p, None)
            self._without_state.update(dict.fromkeys(read.unreadable))

    async def _read_topics(self, names: Sequence[str]) -> list[Partition]:
        """Read these topics; returns the partitions that are new, or have another assignment.

        Topics that cannot be read, or that a controller has to give an id, are left out: a new controller reads them.
        """
        unread: list[Partition] = []
        for chunk in chunks(names, READ_TOPICS):
            self.reads += len(chunk)
            found, _ = await self._store.read_topics(chunk)
            found = {n: z for n, z in found.items() if z.topic_id is not None or not self._uses_topic_ids}
            await self._remove([n for n in chunk if self._is_gone(n, found)])
            new = {n: z for n, z in found.items() if n not in self.context.topics}
            for name in [n for n in found if n not in new]:
                unread += await self._update(self.context.topics[name], found[name])
            ids = {n: z.topic_id for n, z in new.items()}
            unread += await add_topics(self.context, self.slices, new, ids, INITIAL_REPLICA_STATE)
            self.mzxids.update((n, z.mzxid) for n, z in found.items())
        return unread

    def _is_gone(self, name: str, found: dict[str, TopicZnode]) -> bool:
        """Whether the topic in the context no longer exists, or another one has its name."""
        known, znode = self.context.topics.get(name), found.get(name)
        if known is None:
            return False
        return znode is None or is_another_topic(known, znode) or known.id != znode.topic_id

    async def _remove(self, names: Collection[str]) -> None:
        """Remove these topics from this copy of ZooKeeper's topics."""
        for name in names:
            self.mzxids.pop(name)
            self._forget(self.context.topics[name].partitions.values())
        await remove_topics(self.context, self.slices, names)

    async def _update(self, topic: Topic, znode: TopicZnode) -> list[Partition]:
        """Replace the partitions whose assignment changed; returns them, with those that were added."""
        gone = [p for n, p in topic.partitions.items() if znode.partitions.get(n) != p.assignment]
        self._forget(gone)
        async for piece in self.slices.over(gone):
            self.context.remove_partitions(piece)
        added = {n: a for n, a in znode.partitions.items() if n not in topic.partitions}
        return await add_partitions(self.context, self.slices, topic, added, INITIAL_REPLICA_STATE)

    def _forget(self, partitions: Iterable[Partition]) -> None:
        """Stop counting these partitions, which are removed, among those without a readable state."""
        for p in partitions:
            self._without_state.pop(p, None)


def _ignore(_: object) -> None:
    """Do nothing: the callback for a session whose reports are no longer of interest."""


def changed_by(paths: Iterable[str]) -> ChangedPaths:
    """The topics and partition states at these paths below `/brokers/topics`; others are of no interest."""
    changed = ChangedPaths([], [])
    for path in paths:
        match path[len(TOPICS) + 1 :].split("/"):
            case [topic]:
                changed.topics.append(topic)
            case [topic, "partitions", number, "state"] if number.isdecimal() and len(number) <= _MAX_DIGITS:
                changed.partitions.append((topic, int(number)))
    return changed
