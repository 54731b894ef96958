"""What a client does, as steps without I/O: a generator yields what is to be done, a driver does it.

The asyncio driver and the blocking one run the same steps, so who is asked, how often and after which wait is
written, and tested, once.
"""

from collections.abc import Callable, Generator
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from klamm.client.backoff import Backoff
from klamm.client.errors import ConnectionLost, RetriableError
from klamm.client.versions import Request
from klamm.model.cluster import Address

T = TypeVar("T")


class Ask(NamedTuple):
    """A step: send a request to an address. The driver sends in the answer, or throws the error.

    It also tells the cluster's metadata which broker answered, or was lost.
    """

    address: Address
    request: Request
    timeout_s: float | None = None
    """None: the driver's own. The blocking driver's own counts in any case."""


class Wait(NamedTuple):
    """A step: wait this long."""

    seconds: float


Steps: TypeAlias = Generator[Ask | Wait, Any, T]


class Running(Generic[T]):
    """A run of steps: `step` is the next one to do, None once `result` is there."""

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self.step: Ask | Wait | None = None
        self.result: T | None = None
        self.send(None)

    def send(self, answer: Any) -> None:
        """Give the steps an answer and advance to the next step. Raises what the steps raise."""
        try:
            self.step = self._steps.send(answer)
        except StopIteration as done:
            self.step, self.result = None, done.value

    def throw(self, error: Exception) -> None:
        """Give the steps an error and advance to the next step. Raises what the steps raise."""
        try:
            self.step = self._steps.throw(error)
        except StopIteration as done:
            self.step, self.result = None, done.value


def retried(what: str, attempt: Callable[[], Steps[T]], backoff: Backoff) -> Steps[T]:
    """Repeat `attempt` until it succeeds. Raises Unreachable when the time allowed is over."""
    while True:
        try:
            return (yield from attempt())
        except (ConnectionLost, RetriableError) as error:
            yield Wait(backoff.next_wait_s(what, error))
