"""Requests that wait for a condition, by key. Source: DelayedOperation.scala (DelayedOperationPurgatory).

An operation is tried, registered under every key, and when a key is checked, it is tried again for that key: what is
checked for thousands of keys does not look at all of them each time. A timer ends its wait.
Everything runs on one loop, so no change between the last try and the registration is missed, and no lock is held;
where others run between the registration of many keys, each is tried once more with its registration.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from klamm.runtime.time_slices import PIECE, CountedSlices, Slices

KeyT = TypeVar("KeyT", bound=Hashable)


class DelayedOperation(Generic[KeyT]):
    """One delayed operation; a check of any of its keys calls `is_done` again with that key."""

    __slots__ = ("future", "is_done")

    def __init__(self, is_done: Callable[[Iterable[KeyT]], bool], future: asyncio.Future[bool]) -> None:
        self.is_done = is_done
        self.future = future

    def complete(self, in_time: bool) -> None:
        """End the wait of the operation; `in_time` is false if it timed out."""
        if not self.future.done():
            self.future.set_result(in_time)


class Purgatory(Generic[KeyT]):
    """Operations waiting under keys, at most `limit` of them: one more is answered at once as if its time were up."""

    def __init__(self, limit: int = 100_000, slices: Slices | None = None) -> None:
        """`slices`: for operations with many keys; without it, slices that count items."""
        self._limit = limit
        self._slices = slices or CountedSlices()
        self._waiting = 0
        self._by_key: dict[KeyT, dict[DelayedOperation[KeyT], None]] = {}  # a dict keeps the order of arrival

    def __len__(self) -> int:
        return self._waiting

    @property
    def keys(self) -> Iterable[KeyT]:
        """The keys for which at least one operation waits."""
        return self._by_key.keys()

    async def wait(self, keys: Iterable[KeyT], is_done: Callable[[Iterable[KeyT]], bool], timeout_s: float) -> bool:
        """Wait until `is_done` is true; False where the timeout came first or the purgatory is full.

        `is_done` gets the keys that may have changed: all at first, those of many keys in time slices. It remembers
        what it found of the others.
        """
        own_keys = tuple(keys)
        if len(own_keys) > PIECE:
            await self._slices.run(map(is_done, zip(own_keys)))
        if is_done(() if len(own_keys) > PIECE else own_keys):
            return True
        if timeout_s <= 0 or self._waiting >= self._limit:
            return False
        loop = asyncio.get_running_loop()
        operation = DelayedOperation(is_done, loop.create_future())
        timer = loop.call_later(timeout_s, operation.complete, False)
        self._waiting += 1
        try:
            rest = self._slices.begin(self._register(operation, own_keys))
            if rest is not None:
                await rest
            return await operation.future
        finally:
            timer.cancel()
            self._forget(operation, own_keys)

    def check(self, key: KeyT) -> int:
        """Complete the operations under `key` whose condition is true now, and return how many."""
        operations = self._by_key.get(key)
        if not operations:
            return 0
        done = [o for o in operations if not o.future.done() and o.is_done((key,))]
        for operation in done:
            operation.complete(True)
        return len(done)

    def check_all(self) -> None:
        """Complete the operations whose condition is true now, under any key."""
        for key in list(self._by_key):
            self.check(key)

    def _register(self, operation: DelayedOperation[KeyT], keys: tuple[KeyT, ...]) -> Iterator[None]:
        """Add the operation under each key, and pause; of many, each is tried again, since others ran meanwhile."""
        for key in keys:
            self._by_key.setdefault(key, {})[operation] = None
            if len(keys) > PIECE and operation.is_done((key,)):
                operation.complete(True)
            yield

    def _forget(self, operation: DelayedOperation[KeyT], keys: tuple[KeyT, ...]) -> None:
        """Remove the operation from each key under which it was registered."""
        self._waiting -= 1
        for key in keys:
            operations = self._by_key.get(key)
            if operations is None:
                continue
            operations.pop(operation, None)
            if not operations:
                del self._by_key[key]
