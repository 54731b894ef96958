"""Running `klamm produce` and `klamm consume` to their end."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from klamm.client.cluster import TopicGone
from klamm.model.errors import KlammError
from klamm.runtime.main_loop import run_loop

_INTERRUPTED: Final = 130


def run_stream(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run the coroutine and return its exit status. Raises KlammError, with a remedy where a topic is gone."""
    try:
        return run_loop(work())
    except asyncio.CancelledError:  # a second Ctrl-C
        return _INTERRUPTED
    except TopicGone as error:
        raise KlammError(f"Stopped, because {error}. `klamm topics list` shows the topics.") from None
