"""What a client does, as steps without I/O: a generator yields what is to be done, a driver does it.

The asyncio driver and the blocking one run the same steps, so who is asked, how often and after which wait is
written, and tested, once.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from klamm.client.addresses import Address
from klamm.client.backoff import Backoff
from klamm.client.errors import ConnectionLost, RetriableError
from klamm.client.versions import Request

T = TypeVar("T")


class Ask(NamedTuple):
    """The driver sends the answer in, or throws ConnectionLost or UnsupportedVersion."""

    address: Address
    request: Request
    timeout_s: float | None = None
    """None: the driver's own. The blocking driver's own counts in any case."""


class Wait(NamedTuple):
    seconds: float


Steps: TypeAlias = Generator[Ask | Wait, Any, T]


def retried(what: str, attempt: Callable[[], Steps[T]], backoff: Backoff) -> Steps[T]:
    """Until it succeeds. Raises Unreachable when the time allowed is over."""
    while True:
        try:
            return (yield from attempt())
        except (ConnectionLost, RetriableError) as error:
            yield Wait(backoff.next_wait_s(what, error))
