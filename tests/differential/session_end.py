"""Ends a ZooKeeper session from outside: its owner sees an expiry. Source: ClientCnxn.java, zookeeper.jute."""

import asyncio
import struct

_CONNECT = struct.Struct(">iqiq")  # protocol, last zxid seen, time-out, session
_TIMEOUT_MS = 10_000
_CLOSE_SESSION = struct.pack(">ii", 1, -11)  # request number, kind


async def end_session(port: int, session_id: int, password: bytes) -> None:
    """Resume the session and close it at once, so that its owner sees an expiry."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    hello = _CONNECT.pack(0, 0, _TIMEOUT_MS, session_id) + struct.pack(">i", len(password)) + password + b"\0"
    writer.write(b"".join(struct.pack(">i", len(packet)) + packet for packet in (hello, _CLOSE_SESSION)))
    await reader.read()
    writer.close()
