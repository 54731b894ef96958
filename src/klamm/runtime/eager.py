"""Running a coroutine's first step at once, without a task: most requests never wait.

Python 3.12 has this as `asyncio.eager_task_factory`. The first step runs outside any task, so it must not use anything
that needs the current task (`asyncio.timeout`, task groups).
"""

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Rest(Generic[T]):
    """A coroutine after its first step; awaiting it runs the rest. Await it once."""

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
    """Run the coroutine up to its first wait.

    Returns its result if it ended, else a `Rest` to await. Raises what it raises.
    """
    try:
        first = coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    return Rest(coroutine, first)
