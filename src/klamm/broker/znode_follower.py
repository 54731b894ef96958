"""Reading again what a watch says may have changed: one task, that neither ZooKeeper's absence nor a mistake ends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from klamm.model.errors import KlammError

RETRY_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
"""Between two tries after mistakes of ours, which seldom mend themselves."""
OnUnexpectedError = Callable[[str, Exception], None]
"""What was done when it happened, and what happened; must not raise."""
log = structlog.get_logger("node")


def log_unexpected_error(what: str, error: Exception) -> None:
    log.error("a mistake of ours; what was known before goes on", what=what, reason=repr(error), exc_info=error)


class ZnodeFollower:
    """`start` once ZooKeeper may be asked; `wake` when something may be new; `close` at the end."""

    def __init__(self, what: str, read: Callable[[], Awaitable[None]], on_unexpected_error: OnUnexpectedError) -> None:
        """`read` raises KlammError where ZooKeeper cannot be asked: it is called again a second later."""
        self._what = what
        self._read = read
        self._on_unexpected_error = on_unexpected_error
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_busy = False

    @property
    def is_settled(self) -> bool:
        """Nothing is being read, and nothing is known to be new."""
        return not self._is_busy and not self._wanted.is_set()

    def start(self) -> None:
        self._wanted.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self._what)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def wake(self) -> None:
        self._wanted.set()

    async def _run(self) -> None:
        pause_s = RETRY_S
        while True:
            self._is_busy = False
            await self._wanted.wait()
            self._wanted.clear()
            self._is_busy = True
            try:
                await self._read()
            except KlammError as error:
                log.warning(f"{self._what} cannot be read, trying again", reason=str(error))
                await asyncio.sleep(RETRY_S)
                self._wanted.set()
            except Exception as error:  # the next change must be followed, whatever was wrong with this one
                self._on_unexpected_error(f"following {self._what}", error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                self._wanted.set()
            else:
                pause_s = RETRY_S
