"""Follows a znode: reads it again after each watch event, and retries after ZooKeeper failures and bugs."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import structlog

from klamm.model.errors import KlammError
from klamm.zk.store import Store
from klamm.zk.watches import EventType, WatchEvent

RETRY_BACKOFF_S: Final = 1.0
MAX_BUG_BACKOFF_S: Final = 60.0
"""Between two reads after unexpected errors, which are bugs and seldom pass."""
OnUnexpectedError = Callable[[str, Exception], None]
"""Gets what was being done, and the error; must not raise."""
log = structlog.get_logger("node")


def log_unexpected_error(what: str, error: Exception) -> None:
    """Log an unexpected error with its stack; `what` names the work that failed."""
    log.error(
        "unexpected error in background work; what was known before it stays in use",
        what=what,
        reason=repr(error),
        action="Report this as a bug in klamm, with the stack trace.",
        exc_info=error,
    )


class ZnodeFollower:
    """A part of a node that reads a znode after each change and each new session; `start` it in a session."""

    def __init__(
        self,
        what: str,
        path: str,
        read: Callable[[], Awaitable[None]],
        on_unexpected_error: OnUnexpectedError,
        event_types: Collection[EventType] = frozenset(EventType),
    ) -> None:
        """`read` sets the watch on `path`. It raises KlammError where ZooKeeper does not answer, and is called again.

        Only watch events of `event_types` lead to a read.
        """
        self._what = what
        self._path = path
        self._read = read
        self._on_unexpected_error = on_unexpected_error
        self._event_types = frozenset(event_types)
        self._may_be_new = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_reading = False

    @property
    def is_up_to_date(self) -> bool:
        """Whether nothing is being read and no watch event waits."""
        return not self._is_reading and not self._may_be_new.is_set()

    def start(self) -> None:
        """Start the task that reads the znode now and after each change."""
        self._may_be_new.set()
        self._task = asyncio.get_running_loop().create_task(self._read_in_loop(), name=self._what)

    async def close(self) -> None:
        """Stop reading the znode."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def wake(self) -> None:
        """Schedule a read of the znode, as after a change of it."""
        self._may_be_new.set()

    def on_watch(self, event: WatchEvent) -> None:
        """Schedule a read where the event is about this znode."""
        if event.path == self._path and event.type in self._event_types:
            self.wake()

    async def session_expired(self) -> None:
        """Do nothing: the next session schedules the read."""
        return

    def session_established(self, store: Store) -> None:
        """Schedule a read, which sets the watch in the new session."""
        self.wake()

    async def _read_in_loop(self) -> None:
        """Read after each wake; errors are logged and retried with backoff."""
        backoff_s = RETRY_BACKOFF_S
        while True:
            self._is_reading = False
            await self._may_be_new.wait()
            self._may_be_new.clear()
            self._is_reading = True
            try:
                await self._read()
            except KlammError as error:
                log.warning(f"cannot read {self._what} from ZooKeeper; retrying", reason=str(error))
                await asyncio.sleep(RETRY_BACKOFF_S)
                self._may_be_new.set()
            except Exception as error:  # later changes must be followed in any case
                self._on_unexpected_error(f"following {self._what}", error)
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, MAX_BUG_BACKOFF_S)
                self._may_be_new.set()
            else:
                backoff_s = RETRY_BACKOFF_S
