"""Reads of many znodes at once: with multiRead where the server supports it, else with pipelined single reads."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

from klamm.zk import requests
from klamm.zk.errors import ZkCode, error_of
from klamm.zk.hosts import Server
from klamm.zk.jute import Stat
from klamm.zk.multi import multi_children, multi_get
from klamm.zk.operations import ChildrenResult, GetResult
from klamm.zk.requests import Request
from klamm.zk.states import ENDED
from klamm.zk.transport import Driver

T = TypeVar("T")
BuildMultiRead: TypeAlias = Callable[[Sequence[str], str], Request[list[T] | None]]
"""Makes a multiRead request for these paths below a chroot."""

MAX_READS_PER_REQUEST: Final = 1_000
EXISTS_AT_ONCE: Final = 250
"""Each is a request of its own, and to make so many takes some ms."""
REPLY_BYTES: Final = 512 << 10
"""The aimed size of a reply: an eighth of the packet limit, so that a few large znodes do not exceed it."""
INITIAL_ANSWER_BYTES: Final = 8 << 10
"""The assumed size of one answer before the first reply."""
UNSUPPORTED_BACKOFF_S: Final = 600.0
"""How long a server without multiRead is not sent another one: it may be upgraded."""
_MAX_REQUESTS_IN_FLIGHT: Final = 4  # while one is decoded here, the server works on the next


class BulkReads:
    """Bulk reads of one client; remembers for a while which servers do not support multiRead.

    Such a server ends the connection: each further multiRead would cost a reconnect, and repeat requests under way.
    """

    def __init__(self, driver: Driver, chroot: str) -> None:
        self._driver = driver
        self._chroot = chroot
        self._refused_until: dict[Server, float] = {}

    async def get_many(self, paths: Sequence[str], watch: bool) -> list[GetResult]:
        """Data and stat of each path, in order."""
        answers = await self._multi_read(paths, watch, multi_get)
        for i, single in await self._read_singly(paths, answers, lambda full: requests.get(full, watch)):
            data, stat = single.value if single.code is ZkCode.OK else (None, None)
            answers[i] = GetResult(paths[i], _code_of(single), data, stat)
        return cast("list[GetResult]", answers)

    async def children_many(self, paths: Sequence[str], watch: bool) -> list[ChildrenResult]:
        """The children of each path, in order."""
        answers = await self._multi_read(paths, watch, multi_children)
        for i, single in await self._read_singly(paths, answers, lambda full: requests.children(full, watch)):
            answers[i] = ChildrenResult(paths[i], _code_of(single), single.value[0] if single.code is ZkCode.OK else [])
        return cast("list[ChildrenResult]", answers)

    async def exists_many(self, paths: Sequence[str], watch: bool) -> list[Stat | None]:
        """The stat of each path, in order; None where there is no znode."""
        found: list[Stat | None] = []
        for start in range(0, len(paths), EXISTS_AT_ONCE):
            piece = paths[start : start + EXISTS_AT_ONCE]
            ended = await self._driver.complete_all(requests.exists(self._full_path(p), watch) for p in piece)
            found += [None if r.code is ZkCode.NO_NODE else value_of(r) for r in ended]
        return found

    async def _multi_read(self, paths: Sequence[str], watch: bool, build: BuildMultiRead[T]) -> list[T | None]:
        """Read many paths with multiRead. Returns the answers in order; None for paths that have to be read singly."""
        reading = _BulkRead(self._driver, paths, lambda part: build(part, self._chroot))
        session, now = self._driver.session, asyncio.get_running_loop().time
        if not watch and self._refused_until.get(session.server, 0.0) <= now() and not await reading.run():
            self._refused_until[session.server] = now() + UNSUPPORTED_BACKOFF_S
        return reading.answers

    async def _read_singly(
        self, paths: Sequence[str], answers: Sequence[object], build: Callable[[str], Request[T]]
    ) -> list[tuple[int, Request[T]]]:
        """Read each path without an answer with a request of its own; returns the requests with their indexes."""
        missing = [i for i, answer in enumerate(answers) if answer is None]
        ended = await self._driver.complete_all(build(self._full_path(paths[i])) for i in missing)
        return list(zip(missing, ended, strict=True))

    def _full_path(self, path: str) -> str:
        """The path with the chroot in front."""
        return self._chroot + path if path != "/" else self._chroot or path


def value_of(request: Request[T]) -> T:
    """The value of a completed request. Raises the exception of its error code."""
    if request.code is not ZkCode.OK:
        assert request.code is not None
        raise error_of(request.code, request.path)
    return request.value


def _code_of(request: Request[Any]) -> ZkCode:
    """The error code of a completed request. Raises if the session ended."""
    code = request.code
    assert code is not None
    if code in ENDED.values():
        raise error_of(code, request.path)
    return code


class _PartialRead(NamedTuple, Generic[T]):
    """A request under way for the paths from `start` to `end`."""

    start: int
    end: int
    request: Request[list[T] | None]
    future: asyncio.Future[None]


class _BulkRead(Generic[T]):
    """One read of many paths with several requests at a time; their size follows the size of the replies."""

    def __init__(
        self, driver: Driver, paths: Sequence[str], build: Callable[[Sequence[str]], Request[list[T] | None]]
    ) -> None:
        self._driver = driver
        self._paths = paths
        self._build = build
        self._next = 0
        self._under_way: deque[_PartialRead[T]] = deque()
        self._expected_bytes = float(INITIAL_ANSWER_BYTES)  # of one answer
        self.answers: list[T | None] = [None] * len(paths)

    async def run(self) -> bool:
        """Read all paths; false if the server does not support the request, and then some paths have no answer."""
        try:
            while self._next < len(self._paths) or self._under_way:
                while self._next < len(self._paths) and len(self._under_way) < _MAX_REQUESTS_IN_FLIGHT:
                    start = self._next
                    self._next = min(len(self._paths), start + self._next_count())
                    await self._start(start, self._next)
                await self._under_way[0].future
                if not await self._store_answers(self._under_way.popleft()):
                    return False
        finally:
            for part in self._under_way:
                part.request.abandoned = True
        return True

    def _next_count(self) -> int:
        """How many paths the next request reads, estimated from the size of the replies so far."""
        return max(1, min(MAX_READS_PER_REQUEST, int(REPLY_BYTES / self._expected_bytes)))

    async def _start(self, start: int, end: int) -> None:
        """Submit one request that reads the paths from `start` to `end`."""
        request = self._build(self._paths[start:end])
        self._under_way.append(_PartialRead(start, end, request, await self._driver.start(request)))

    async def _store_answers(self, part: _PartialRead[T]) -> bool:
        """Store the answers of a completed request, or split it; false if multiRead is not supported."""
        start, end, request, _ = part
        if request.code is ZkCode.REPLY_TOO_LARGE:
            self._expected_bytes *= 4
            if end - start > 1:
                middle = (start + end) // 2
                await self._start(start, middle)
                await self._start(middle, end)
            return True
        if request.code is ZkCode.UNIMPLEMENTED or (answers := value_of(request)) is None:
            return False
        self.answers[start:end] = answers
        self._expected_bytes = max(request.reply_bytes / (end - start), self._expected_bytes / 4)
        return True
