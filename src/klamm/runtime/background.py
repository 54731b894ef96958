"""An event loop in a thread of its own, for a blocking interface to code that needs a loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class BackgroundLoop:
    """An event loop that runs in a daemon thread until `close`. Its methods may be called from any other thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on the loop in the background thread, and block until its result is there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in the loop's thread, and block until its result is there."""

        async def called() -> T:
            """Call the function in the loop's thread."""
            return function(*args, **kwargs)

        return self.run(called())

    def close(self) -> None:
        """Cancel all running tasks, and end the thread."""
        if self._loop.is_closed():
            return
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    """Cancel all other tasks of the running loop, and wait for their end."""
    others = asyncio.all_tasks() - {task for task in (asyncio.current_task(),) if task is not None}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
