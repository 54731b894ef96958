"""Something done again and again in a thread while a test goes on; if it fails, so does the test."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

PAUSE_S: Final = 0.05


class Background:
    """`check` raises what ended the thread."""

    def __init__(self, what: str, step: Callable[[], None]) -> None:
        self._what = what
        self._step = step
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise AssertionError if the thread has failed."""
        if self._failure is not None:
            raise AssertionError(f"{self._what} failed: {self._failure!r}") from self._failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(PAUSE_S):
                self._step()
        except BaseException as error:  # whatever it is, `check` raises it
            self._failure = error


@contextmanager
def in_background(what: str, step: Callable[[], None]) -> Iterator[Background]:
    """Do `step` again and again until the end of the block; raises AssertionError there if one failed."""
    background = Background(what, step)
    background.start()
    try:
        yield background
    finally:
        background.stop()
    background.check()
