"""Client operations as steps without I/O: a generator yields each step, and a driver executes it.

The asyncio driver and the blocking driver run the same steps, so that routing, retries and waits are written and tested
once.
"""

from collections.abc import Callable, Generator
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from klamm.client.backoff import Backoff
from klamm.client.errors import ConnectionLost, RetriableError
from klamm.client.versions import Request
from klamm.model.cluster import Address

T = TypeVar("T")


class Ask(NamedTuple):
    """A step: send a request to an address; the driver passes the response, or the error, to the generator.

    The driver also tells the cluster's metadata that the broker answered, or that the connection was lost.
    """

    address: Address
    request: Request
    timeout_s: float | None = None
    """None: the driver's own. The blocking driver's own counts in any case."""


class Wait(NamedTuple):
    """A step: wait for this time."""

    seconds: float


Steps: TypeAlias = Generator[Ask | Wait, Any, T]


class Running(Generic[T]):
    """A run of steps: `step` is the next one to execute, None once `result` is there."""

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self.step: Ask | Wait | None = None
        self.result: T | None = None
        self.send(None)

    def send(self, answer: Any) -> None:
        """Pass a response to the generator of steps, and keep its next step. Raises what the generator raises."""
        try:
            self.step = self._steps.send(answer)
        except StopIteration as done:
            self.step, self.result = None, done.value

    def throw(self, error: Exception) -> None:
        """Throw the error into the generator of steps, and keep the next step. Raises what the generator raises."""
        try:
            self.step = self._steps.throw(error)
        except StopIteration as done:
            self.step, self.result = None, done.value


def one_step(step: Ask) -> Steps[Any]:
    """The steps of a single request.

    The driver records in the metadata whether the broker answered or the connection was lost.
    """
    return (yield step)


def retried(what: str, attempt: Callable[[], Steps[T]], backoff: Backoff) -> Steps[T]:
    """The steps that repeat `attempt` until it succeeds. Raises Unreachable when the time allowed is over."""
    while True:
        try:
            return (yield from attempt())
        except (ConnectionLost, RetriableError) as error:
            yield Wait(backoff.next_wait_s(what, error))
