"""Incremental fetches: what a client asked for is kept, only changes travel (KIP-227). Source: FetchSession.scala.

| request (id, epoch)  | meaning                                                               |
|----------------------|-----------------------------------------------------------------------|
| (0, 0)               | full fetch, please create a session                                   |
| (x, 0)               | full fetch, drop session x, create a new one                          |
| (x, −1) or (0, −1)   | full fetch without session, drop x                                    |
| (x, n > 0)           | incremental: changes relative to the session                          |
"""

import itertools
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klamm.model.errors import ErrorCode
from klamm.model.ids import NO_BROKER, BrokerId
from klamm.replication.fetch_data import FetchData, FetchPartition
from klamm.replication.fetch_waiter import CachedPartition, FetchWaiter
from klamm.runtime.randomness import Rng
from klamm.runtime.time_slices import PIECE, Slices

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 2**31 - 1
EVICTION_MS: Final = 120_000
DEFAULT_SLOTS: Final = 1_000

PartitionKey = tuple[str | uuid.UUID | None, int]


class FetchAnswer(NamedTuple):
    """A whole Fetch response; where `error` is set there are no partitions."""

    error: ErrorCode
    session_id: int
    partitions: list[tuple[CachedPartition, FetchData]]


class FetchRequested(NamedTuple):
    """What a Fetch request says, apart from `FetchParams`. `forgotten` names partitions as `FetchPartition` does."""

    partitions: Sequence[FetchPartition]
    session_id: int = NO_SESSION
    session_epoch: int = FINAL_EPOCH
    forgotten: Sequence[tuple[str | None, uuid.UUID, int]] = ()
    uses_topic_ids: bool = False
    replica_id: BrokerId = BrokerId(-1)


def next_epoch(epoch: int) -> int:
    """The fetch session epoch that a client sends next; the greatest epoch is followed by 1, never by 0."""
    return 1 if epoch >= MAX_EPOCH else epoch + 1


class FetchSession:
    """The partitions one client asked for over several requests."""

    __slots__ = ("created_ms", "epoch", "id", "last_used_ms", "partitions", "uses_topic_ids", "waiter")

    def __init__(
        self,
        session_id: int,
        waiter: FetchWaiter,
        partitions: dict[PartitionKey, CachedPartition],
        *,
        uses_topic_ids: bool,
        now_ms: float,
    ) -> None:
        self.id = session_id
        self.waiter = waiter
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_ms = now_ms
        self.last_used_ms = now_ms

    @property
    def is_privileged(self) -> bool:
        """Whether the session belongs to a follower."""
        return self.waiter.is_follower

    def eviction_rank(self) -> tuple[bool, int, int]:
        """Sort key for eviction, lowest first: consumers before followers, then fewer partitions."""
        return self.is_privileged, len(self.partitions), self.id

    def has(self, cached: CachedPartition) -> bool:
        """Whether the session has ended neither for this entry nor as a whole."""
        wanted = cached.request
        key = partition_key(wanted.topic, wanted.topic_id, wanted.partition, self.uses_topic_ids)
        return self.epoch != FINAL_EPOCH and self.partitions.get(key) is cached

    def update(self, requested: FetchRequested) -> Iterator[None]:
        """Apply an incremental request: add, change and forget partitions; those in the request are read again.

        Pauses after each partition, and ends where a later request arrives meanwhile or the session ends.
        """
        changed = self.waiter.changed
        epoch = self.epoch
        for wanted in requested.partitions:
            key = partition_key(wanted.topic, wanted.topic_id, wanted.partition, self.uses_topic_ids)
            known = self.partitions.get(key)
            if known is None:
                known = self.partitions[key] = CachedPartition(wanted, self.waiter)
            elif wanted.topic is None and known.request.topic is not None:
                known.request = wanted._replace(topic=known.request.topic)
            else:
                known.request = wanted
            changed[known] = None
            yield
            if self.epoch != epoch:
                return
        for topic, topic_id, partition in requested.forgotten:
            gone = self.partitions.pop(partition_key(topic, topic_id, partition, self.uses_topic_ids), None)
            if gone is not None:
                gone.unsubscribe()
                changed.pop(gone, None)
            yield
            if self.epoch != epoch:
                return


def partition_key(topic: str | None, topic_id: uuid.UUID, partition: int, uses_topic_ids: bool) -> PartitionKey:
    """The key of a partition in a session: topic id or name, and partition number."""
    return (topic_id if uses_topic_ids else topic), partition


class FetchContext(ABC):
    """One Fetch between request and response: which partitions to read, and how to build the response."""

    __slots__ = ("waiter",)

    def __init__(self, waiter: FetchWaiter) -> None:
        self.waiter = waiter

    @abstractmethod
    def has_partitions(self) -> bool:
        """Whether the fetch covers any partition, so that waiting makes sense."""

    def is_superseded(self) -> bool:
        """Whether a newer fetch has used the session, or the session ended, so that waiting is pointless."""
        return False

    @abstractmethod
    async def answer(self, results: Mapping[CachedPartition, FetchData], slices: Slices) -> FetchAnswer:
        """Build the response, and record in the session what the response says of each partition."""

    @abstractmethod
    def put_back(self, read: Iterable[CachedPartition]) -> None:
        """Have a later fetch of the session read these partitions again, which were read and not sent."""

    @abstractmethod
    def release(self) -> None:
        """Free what only this fetch used, at once: called where the fetch ends early, as when it was cancelled."""

    @abstractmethod
    def opening(self) -> Iterator[None]:
        """Take over the partitions of the request; pauses after each. Called once, before everything else."""

    @abstractmethod
    async def free(self, slices: Slices) -> None:
        """Free what only this fetch used; called at its end."""


class FullFetch(FetchContext):
    """A request that lists all its partitions; where `sessions` is given, its answer creates a session."""

    __slots__ = ("_partitions", "_requested", "_sessions")

    def __init__(self, requested: FetchRequested, sessions: "FetchSessions | None") -> None:
        super().__init__(FetchWaiter(requested.replica_id, stays=False))
        self._requested = requested
        self._sessions = sessions
        self._partitions: dict[PartitionKey, CachedPartition] = {}

    def opening(self) -> Iterator[None]:
        """Mark all partitions of the request as to be read; of one that is listed twice, the last counts."""
        uses_topic_ids = self._requested.uses_topic_ids
        partitions, changed = self._partitions, self.waiter.changed
        for wanted in self._requested.partitions:
            key = partition_key(wanted.topic, wanted.topic_id, wanted.partition, uses_topic_ids)
            if (replaced := partitions.get(key)) is not None:
                del changed[replaced]
            entry = partitions[key] = CachedPartition(wanted, self.waiter)
            changed[entry] = None
            yield

    def has_partitions(self) -> bool:
        """Whether the request has any partition."""
        return bool(self._partitions)

    async def answer(self, results: Mapping[CachedPartition, FetchData], slices: Slices) -> FetchAnswer:
        """Build the response with all results, and create a session for them where a slot is free."""
        session_id = NO_SESSION
        if self._sessions is not None and self._partitions:
            await slices.run(itertools.starmap(_record_sent, results.items()))
            session_id = self._create_session(self._sessions)
        partitions = list(results.items()) if len(results) <= PIECE else await slices.list_of(results.items())
        return FetchAnswer(ErrorCode.NONE, session_id, partitions)

    def _create_session(self, sessions: "FetchSessions") -> int:
        """Create a session and return its id; NO_SESSION where no slot is free and none can be freed."""
        session = sessions.create(self.waiter, self._partitions, uses_topic_ids=self._requested.uses_topic_ids)
        if session is None:
            return NO_SESSION
        self.waiter.stays = True
        return session.id

    def put_back(self, read: Iterable[CachedPartition]) -> None:
        """Do nothing: no later fetch knows of a session whose id was not sent."""

    def release(self) -> None:
        """Unsubscribe the partitions, unless a session has taken them over."""
        if not self.waiter.stays:
            self.waiter.close(self._partitions.values())

    async def free(self, slices: Slices) -> None:
        """Unsubscribe and free the partitions, unless a session has taken them over."""
        if not self.waiter.stays:
            await slices.run(map(CachedPartition.unsubscribe, self._partitions.values()))
            await slices.clear(self.waiter.changed)
            await slices.clear(self._partitions)


class IncrementalFetch(FetchContext):
    """A request that lists only changed partitions, and whose response contains only changed ones."""

    __slots__ = ("_expected_epoch", "_requested", "_session")

    def __init__(self, session: FetchSession, requested: FetchRequested) -> None:
        super().__init__(session.waiter)
        self._session = session
        self._requested = requested
        self._expected_epoch = session.epoch

    def opening(self) -> Iterator[None]:
        """Apply the request to the session."""
        return self._session.update(self._requested)

    def has_partitions(self) -> bool:
        """Whether the session has any partition."""
        return bool(self._session.partitions)

    def is_superseded(self) -> bool:
        """Whether a later request of the session has arrived meanwhile."""
        return self._session.epoch != self._expected_epoch

    async def answer(self, results: Mapping[CachedPartition, FetchData], slices: Slices) -> FetchAnswer:
        """Build the response with the changed results.

        Partitions with records move after those still to be read, so that no partition starves.
        """
        changed: list[tuple[CachedPartition, FetchData]] = []
        if (rest := slices.begin(self._record_changed(results, changed))) is not None:
            await rest
        if self.is_superseded():
            for cached, _ in changed:
                cached.mark_unsent()
            return FetchAnswer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, self._session.id, [])
        return FetchAnswer(ErrorCode.NONE, self._session.id, changed)

    def _record_changed(
        self, results: Mapping[CachedPartition, FetchData], changed: list[tuple[CachedPartition, FetchData]]
    ) -> Iterator[None]:
        """Put the results to send into `changed`; pauses after each result, and ends where the fetch is superseded."""
        for cached, data in results.items():
            if self.is_superseded():
                return
            if must_send(cached, data):
                changed.append((cached, data))
                _record_sent(cached, data)
                if data.records and cached in self.waiter.changed:
                    del self.waiter.changed[cached]  # after those that wait for their turn (KAFKA-12330)
                    self.waiter.changed[cached] = None
            yield

    def put_back(self, read: Iterable[CachedPartition]) -> None:
        """Mark the partitions as changed that the session still has, and wake a later fetch that waits already."""
        for cached in read:
            if self._session.has(cached):
                self.waiter.changed[cached] = None
        self.waiter.wake()

    def release(self) -> None:
        """Do nothing: the session keeps its partitions."""

    async def free(self, slices: Slices) -> None:
        """Do nothing: the session keeps its partitions."""


def _record_sent(cached: CachedPartition, data: FetchData) -> None:
    """Remember what the response says of the partition; −1 with an error, so that the recovery is sent as well."""
    cached.sent_high_watermark = data.high_watermark
    cached.sent_log_start_offset = data.log_start_offset


def must_send(cached: CachedPartition, data: FetchData) -> bool:
    """Whether an incremental response has to include this partition."""
    return bool(
        data.error
        or data.records
        or data.diverging is not None
        or data.preferred_replica != NO_BROKER
        or data.high_watermark != cached.sent_high_watermark
        or data.log_start_offset != cached.sent_log_start_offset
    )


class FetchSessions:
    """The sessions of one broker, at most `slots`; times are the event loop's, in milliseconds."""

    def __init__(self, rng: Rng, now_ms: Callable[[], float], slots: int = DEFAULT_SLOTS) -> None:
        self._rng = rng
        self._now_ms = now_ms
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """The number of partitions in all fetch sessions together."""
        return sum(len(s.partitions) for s in self._sessions.values())

    def get(self, session_id: int) -> FetchSession | None:
        """The session with this id, or None."""
        return self._sessions.get(session_id)

    async def open(self, requested: FetchRequested, slices: Slices) -> FetchContext | ErrorCode:
        """The context for a Fetch request, or the error code of its fetch session."""
        context = self._new_context(requested)
        if isinstance(context, ErrorCode):
            return context
        if (rest := slices.begin(context.opening())) is not None:
            await rest
        if isinstance(context, IncrementalFetch) and not (context.has_partitions() or context.is_superseded()):
            self.remove(requested.session_id)
            return FullFetch(requested, None)
        return context

    def _new_context(self, requested: FetchRequested) -> FetchContext | ErrorCode:
        """The context for a request that is not yet applied to its session, or the session's error code."""
        if requested.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self.remove(requested.session_id)
            return FullFetch(requested, self if requested.session_epoch == INITIAL_EPOCH else None)
        session = self._sessions.get(requested.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != requested.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != requested.uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        self._mark_used(session)
        session.epoch = next_epoch(session.epoch)
        return IncrementalFetch(session, requested)

    def create(
        self, waiter: FetchWaiter, partitions: dict[PartitionKey, CachedPartition], *, uses_topic_ids: bool
    ) -> FetchSession | None:
        """Create a session for these partitions; None where no slot is free and no session may be evicted."""
        now_ms = self._now_ms()
        if len(self._sessions) >= self._slots and not self._evict_one(waiter.is_follower, len(partitions), now_ms):
            return None
        session = FetchSession(
            self._unused_session_id(), waiter, partitions, uses_topic_ids=uses_topic_ids, now_ms=now_ms
        )
        self._sessions[session.id] = session
        return session

    def remove(self, session_id: int) -> None:
        """Remove the session and mark it as ended; does nothing where it does not exist."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.epoch = FINAL_EPOCH  # a fetch still waiting in it is void
            session.waiter.close(session.partitions.values())

    def close(self) -> None:
        """Remove all sessions; fetches that wait in them return."""
        for session_id in list(self._sessions):
            self.remove(session_id)

    def _mark_used(self, session: FetchSession) -> None:
        """Move the session to the end of the eviction order."""
        session.last_used_ms = self._now_ms()
        self._sessions[session.id] = self._sessions.pop(session.id)

    def _evict_one(self, privileged: bool, size: int, now_ms: float) -> bool:
        """Evict one session to free a slot; False where none may be evicted.

        That is the oldest session if it is stale, else the one that ranks lowest, if it ranks below the new one.
        """
        stalest = next(iter(self._sessions.values()), None)
        if stalest is None:
            return False
        if now_ms - stalest.last_used_ms > EVICTION_MS:
            self.remove(stalest.id)
            return True
        lowest = min(self._evictable(privileged, now_ms), key=FetchSession.eviction_rank, default=None)
        if lowest is None or (privileged, size, 0) < lowest.eviction_rank():
            return False
        self.remove(lowest.id)
        return True

    def _evictable(self, privileged: bool, now_ms: float) -> Iterable[FetchSession]:
        """Sessions older than the minimum age; for a follower also any consumer session."""
        return (
            s
            for s in self._sessions.values()
            if now_ms - s.created_ms > EVICTION_MS or (privileged and not s.is_privileged)
        )

    def _unused_session_id(self) -> int:
        """Return a random session id, 1 to 2^31 - 1, that no session has."""
        while (session_id := self._rng.randrange(1, 2**31)) in self._sessions:
            continue
        return session_id
