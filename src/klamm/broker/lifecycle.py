"""Starts the parts of a node in the order in which they were added, and closes them in the reverse order.

Source: KafkaServer.scala, BrokerState.java (3.9).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol, TypeVar

import structlog

from klamm.model.errors import KlammError

log = structlog.get_logger("node")


class CannotStart(KlammError):
    """This node cannot run as it is configured. The message names cause, place and remedy in one sentence."""


class BrokerState(IntEnum):
    """The state of a node, with Kafka's numbers."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


def _new_future() -> "asyncio.Future[str]":
    """Return a future of the running event loop, without a result."""
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class NodeStatus:
    """State and failure of a node, shared by its parts."""

    state: BrokerState = BrokerState.NOT_RUNNING
    broker_epoch: int = -1
    """The czxid of the registration; -1 before the first one."""
    failure: "asyncio.Future[str]" = field(default_factory=_new_future)
    """Why the node cannot continue, once that is so."""

    def report_failure(self, reason: str) -> None:
        """Report that the node cannot keep running; only the first reason is kept."""
        if not self.failure.done():
            self.failure.set_result(reason)


class Part(Protocol):
    """A part of a node that runs while the node lives."""

    def start(self) -> Awaitable[None] | None:
        """Start the part. Raises where the node cannot run without it."""
        ...

    def close(self) -> Awaitable[None] | None:
        """Stop the part. Called once after `start`, also where `start` failed or was cancelled."""
        ...


def _do_nothing() -> None:
    """Do nothing: the default of a Step that needs no start or no close."""
    return


@dataclass(frozen=True, slots=True)
class Step:
    """A part made of two functions, for objects that name them differently or need only one of them."""

    start: Callable[[], Awaitable[None] | None] = _do_nothing
    close: Callable[[], Awaitable[None] | None] = _do_nothing


PartT = TypeVar("PartT", bound=Part)


class Lifecycle:
    """`add` parts in the order of the start-up, `start` them, `close` them."""

    def __init__(self) -> None:
        self._added: list[tuple[str, Part]] = []
        self._started: list[tuple[str, Part]] = []

    @property
    def names(self) -> list[str]:
        """The names of all parts in the order of the start."""
        return [name for name, _ in (*self._started, *self._added)]

    def add(self, name: str, part: PartT) -> PartT:
        """Register a part that the next `start` starts; returns the part."""
        self._added.append((name, part))
        return part

    async def start(self) -> None:
        """Start what was added since the last call. Where a part fails, close all that were started, and raise."""
        try:
            while self._added:
                self._started.append(self._added.pop(0))
                if (pending := self._started[-1][1].start()) is not None:
                    await pending
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close what was started, the last part first; a part that fails to close does not keep the others open."""
        self._added.clear()
        while self._started:
            name, part = self._started.pop()
            try:
                if (pending := part.close()) is not None:
                    await pending
            except Exception as error:  # the parts below still hold logs and the session
                is_expected = isinstance(error, KlammError | OSError)
                log.error(
                    "cannot close a part of the node; the other parts are closed",
                    part=name,
                    reason=str(error),
                    action="Nothing, if the reason is known: the next start recovers the logs. Else report a bug.",
                    exc_info=None if is_expected else error,
                )
