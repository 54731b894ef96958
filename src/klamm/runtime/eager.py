"""Running a coroutine's first step at once: most requests never wait, and then need no task.

Python 3.12 has this as `asyncio.eager_task_factory`. The first step runs outside any task, so it must not use what asks
for the current task (`asyncio.timeout`, task groups).
"""

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Rest(Generic[T]):
    """The rest of a coroutine after its first step; await it once."""

    __slots__ = ("_coroutine", "_first")

    def __init__(self, coroutine: Coroutine[Any, Any, T], first: Any) -> None:
        self._coroutine = coroutine
        self._first = first

    def __await__(self) -> Generator[Any, Any, T]:
        waits_for = self._first
        while True:
            try:
                try:
                    sent = yield waits_for
                except BaseException as error:
                    waits_for = self._coroutine.throw(error)
                else:
                    waits_for = self._coroutine.send(sent)
            except StopIteration as done:
                value: T = done.value
                return value


def first_step(coroutine: Coroutine[Any, Any, T]) -> T | Rest[T]:
    """Run the coroutine to its first wait: its result where it ended, else its rest. Raises what it raises."""
    try:
        first = coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    return Rest(coroutine, first)
