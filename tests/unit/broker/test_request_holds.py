"""How much one pass of the event loop does for a request with many elements: counted in lines, so on any machine."""

import asyncio
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from benchmarks.stall_cases.requests import Asked, requests
from tests.unit.broker.node_parts import build

from klamm.broker.dispatch import Dispatcher
from klamm.broker.routes import routes
from klamm.net.client_connection import ClientConnection, Peer
from klamm.net.server import EndsWithClient
from klamm.runtime.time_slices import PIECE, CountedSlices
from klamm.wire.frames import RequestHeader, encode_request

ELEMENTS = 12_000
OF_MANY_LINES = {"WRITE_TXN_MARKERS markers": 30_000, "FIND_COORDINATOR coordinator_keys": 20_000}
"""Elements with more than a hundred lines each, of which `PIECE` alone are more than 12,000 lines."""

ASKED = {f"{asked.api_key.name} {asked.field}": asked for asked in requests()}
ON_THE_CONTROLLER = {"CREATE_TOPICS", "CREATE_PARTITIONS", "ELECT_LEADERS", "ALTER_PARTITION_REASSIGNMENTS"}
ON_THE_CONTROLLER |= {"LIST_PARTITION_REASSIGNMENTS", "UPDATE_FEATURES"}
"""APIs whose work begins only on an active controller, which a node that is not started is not."""
IN_LARGER_PIECES = {"METADATA"}
"""1,000 topics at once: see `test_metadata.py`."""
SLICED = [name for name, asked in ASKED.items() if asked.api_key.name not in ON_THE_CONTROLLER | IN_LARGER_PIECES]


class Lines:
    """Counts the lines that run in each callback of the loop."""

    def __init__(self) -> None:
        self.most = 0
        self._count = 0

    def trace(self, _frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            self._count += 1
        return self.trace

    def end_callback(self) -> None:
        self.most = max(self.most, self._count)
        self._count = 0


@contextmanager
def counted_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    """Counts the lines of each callback; coverage is measured again afterwards."""
    lines = Lines()
    run = asyncio.events.Handle._run

    def run_counted(handle: asyncio.Handle) -> None:
        run(handle)
        lines.end_callback()

    before = sys.gettrace()
    with monkeypatch.context() as patch:
        patch.setattr(asyncio.events.Handle, "_run", run_counted)
        sys.settrace(lines.trace)
        try:
            yield lines
        finally:
            sys.settrace(before)


async def most_lines(asked: Asked, elements: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The lines of the longest callback in which a node that is not started handles the request."""
    slices = CountedSlices(PIECE // 2)  # each piece is a pass of its own
    parts, _ = build(directory, slices=slices)
    dispatcher = Dispatcher(routes(parts), slices)
    head = RequestHeader(asked.api_key, asked.version, 1, "c")
    frame, small = (b"".join(encode_request(head, asked.build(count)))[4:] for count in (elements, 1))
    connection = ClientConnection(Peer("PLAINTEXT", "h", 1))

    async def handle(frame: bytes) -> None:
        answer: Any = dispatcher(frame, connection)
        answer = answer.answer if isinstance(answer, EndsWithClient) else answer
        if isinstance(answer, Awaitable):
            await answer

    await handle(small)  # codecs are compiled at first use
    with counted_lines(monkeypatch) as lines:
        await asyncio.create_task(handle(frame))
    assert not dispatcher.unexpected_errors
    return lines.most


@pytest.mark.parametrize("name", SLICED)
async def test_a_request_with_many_elements_is_handled_in_time_slices(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callback does some work on `PIECE` elements, but has no line for each of all elements."""
    elements = OF_MANY_LINES.get(name, ELEMENTS)

    assert await most_lines(ASKED[name], elements, tmp_path, monkeypatch) < elements
