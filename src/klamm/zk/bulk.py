"""Thousands of reads at once: multiRead where the server knows it, pipelined single reads elsewhere."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

from klamm.zk import requests
from klamm.zk.errors import ZkCode, error_of
from klamm.zk.jute import Stat
from klamm.zk.multi import multi_children, multi_get
from klamm.zk.operations import ChildrenResult, GetResult
from klamm.zk.requests import Request
from klamm.zk.states import ENDED
from klamm.zk.transport import Driver

T = TypeVar("T")
Part: TypeAlias = Callable[[Sequence[str]], Request[list[T] | None]]
"""Builds the read of some of the paths."""
MultiRead: TypeAlias = Callable[[Sequence[str], str], Request[list[T] | None]]

MAX_READS_PER_REQUEST: Final = 1_000
REPLY_BYTES: Final = 512 << 10
"""What a reply is meant to hold: an eighth of the packet limit, so that a few large znodes do no harm."""
FIRST_GUESS_BYTES: Final = 8 << 10
_DEPTH: Final = 4  # requests under way: while one is decoded here, the server works on the next


class BulkReads:
    """The reads of one client; remembers which connection's server does not know multiRead."""

    def __init__(self, driver: Driver, chroot: str) -> None:
        self._driver = driver
        self._chroot = chroot
        self._refused_at = 0

    async def get_many(self, paths: Sequence[str], watch: bool) -> list[GetResult]:
        answers = await self._multi_read(paths, watch, multi_get)
        for i, single in await self._singly(paths, answers, lambda full: requests.get(full, watch)):
            data, stat = single.value if single.code is ZkCode.OK else (None, None)
            answers[i] = GetResult(paths[i], _code_of(single), data, stat)
        return cast("list[GetResult]", answers)

    async def children_many(self, paths: Sequence[str], watch: bool) -> list[ChildrenResult]:
        answers = await self._multi_read(paths, watch, multi_children)
        for i, single in await self._singly(paths, answers, lambda full: requests.children(full, watch)):
            answers[i] = ChildrenResult(paths[i], _code_of(single), single.value[0] if single.code is ZkCode.OK else [])
        return cast("list[ChildrenResult]", answers)

    async def exists_many(self, paths: Sequence[str], watch: bool) -> list[Stat | None]:
        ended = await self._driver.complete_all(requests.exists(self._full(p), watch) for p in paths)
        return [None if r.code is ZkCode.NO_NODE else value_of(r) for r in ended]

    async def _multi_read(self, paths: Sequence[str], watch: bool, build: MultiRead[T]) -> list[T | None]:
        """Answers in order; None for what has to be read singly."""
        reading = _Reading(self._driver, paths, lambda part: build(part, self._chroot))
        if not watch and self._refused_at != self._driver.session.attempt and not await reading.run():
            self._refused_at = self._driver.session.attempt
        return reading.answers

    async def _singly(
        self, paths: Sequence[str], answers: Sequence[object], build: Callable[[str], Request[T]]
    ) -> list[tuple[int, Request[T]]]:
        """Read what has no answer yet; with its place."""
        missing = [i for i, answer in enumerate(answers) if answer is None]
        ended = await self._driver.complete_all(build(self._full(paths[i])) for i in missing)
        return list(zip(missing, ended, strict=True))

    def _full(self, path: str) -> str:
        return self._chroot + path if path != "/" else self._chroot or path


def value_of(request: Request[T]) -> T:
    """What an ended request brought; raises what its refusal stands for."""
    if request.code is not ZkCode.OK:
        assert request.code is not None
        raise error_of(request.code, request.path)
    return request.value


def _code_of(request: Request[Any]) -> ZkCode:
    """The code as data; raises where it ended the session."""
    code = request.code
    assert code is not None
    if code in ENDED.values():
        raise error_of(code, request.path)
    return code


class _Part(NamedTuple, Generic[T]):
    """A run of the paths, on its way."""

    start: int
    end: int
    request: Request[list[T] | None]
    future: asyncio.Future[None]


class _Reading(Generic[T]):
    """One read of many paths: a few requests under way, each as long as replies have been small."""

    def __init__(
        self, driver: Driver, paths: Sequence[str], build: Callable[[Sequence[str]], Request[list[T] | None]]
    ) -> None:
        self._driver = driver
        self._paths = paths
        self._build = build
        self._next = 0
        self._under_way: deque[_Part[T]] = deque()
        self._expected_bytes = float(FIRST_GUESS_BYTES)  # of one answer
        self.answers: list[T | None] = [None] * len(paths)

    async def run(self) -> bool:
        """False where the server does not know the request. What could not be read so has no answer."""
        try:
            while self._next < len(self._paths) or self._under_way:
                while self._next < len(self._paths) and len(self._under_way) < _DEPTH:
                    start = self._next
                    self._next = min(len(self._paths), start + self._count())
                    await self._start(start, self._next)
                await self._under_way[0].future
                if not await self._take(self._under_way.popleft()):
                    return False
        finally:
            for part in self._under_way:
                part.request.abandoned = True
        return True

    def _count(self) -> int:
        """How many paths the next request reads, from the expected reply size."""
        return max(1, min(MAX_READS_PER_REQUEST, int(REPLY_BYTES / self._expected_bytes)))

    async def _start(self, start: int, end: int) -> None:
        """Submit one request that reads the paths from `start` to `end`."""
        request = self._build(self._paths[start:end])
        self._under_way.append(_Part(start, end, request, await self._driver.start(request)))

    async def _take(self, part: _Part[T]) -> bool:
        """Store the answers of a finished request, or split it; False where multi-read is unsupported."""
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
