"""The frames of a connection, for brokers that tests write themselves."""

import asyncio
import struct
from collections.abc import AsyncIterator


async def read_frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the frames without their sizes until the peer closes the connection."""
    try:
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            yield await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        return
