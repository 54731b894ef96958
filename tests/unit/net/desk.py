"""A handler that does what its requests say, and connections to a server with it."""

import asyncio
from collections.abc import Awaitable

from tests.unit.net.transports import frame

from klamm.net.client_connection import ClientConnection
from klamm.net.connection_table import ConnectionTable
from klamm.net.memory_limits import RequestMemory, ResponseMemory
from klamm.net.response_writer import Answer
from klamm.net.server import CloseConnection, Handler, MayOverlap, ServerConnection

MAX = 1024 * 1024


class Desk:
    """A handler: `w...` waits until released, `!` refuses, `x` breaks, `n` owes no answer, others are echoed.

    `p...` waits, too, but lets the next request begin.
    """

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.waiting: list[asyncio.Future[Answer]] = []

    def __call__(self, request: bytes, connection: ClientConnection) -> Answer | Awaitable[Answer]:
        self.seen.append(bytes(request))
        match request[:1]:
            case b"!":
                raise CloseConnection("unknown api key 99")
            case b"x":
                raise ZeroDivisionError
            case b"n":
                return None
            case b"w" | b"p":
                if request[:1] == b"p":
                    connection.let_next_begin()
                future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
                self.waiting.append(future)
                return future
        return [frame(bytes(request))]

    async def release(self, answer: bytes) -> None:
        self.waiting.pop(0).set_result([frame(answer)])
        await asyncio.sleep(0)


def serve(
    handle: Handler,
    table: ConnectionTable,
    listener: str = "PLAINTEXT",
    *,
    request_memory: RequestMemory | None = None,
    response_memory: ResponseMemory | None = None,
    may_overlap: MayOverlap = lambda _: False,
    max_request_bytes: int = MAX,
) -> ServerConnection:
    memory = request_memory or RequestMemory(), response_memory or ResponseMemory(MAX)
    return ServerConnection(listener, handle, may_overlap, max_request_bytes, table, *memory)
