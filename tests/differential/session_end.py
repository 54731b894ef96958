"""Somebody else ends a ZooKeeper session: to its owner, that is an expiry. Source: ClientCnxn.java, zookeeper.jute."""

import asyncio
import struct

_CONNECT = struct.Struct(">iqiq")  # protocol, last zxid seen, time-out, session
_TIMEOUT_MS = 10_000
_CLOSE_SESSION = struct.pack(">ii", 1, -11)  # request number, kind


async def end_session(port: int, session_id: int, password: bytes) -> None:
    """Joins the session and closes it in one breath, before its owner is back; returns once it is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    hello = _CONNECT.pack(0, 0, _TIMEOUT_MS, session_id) + struct.pack(">i", len(password)) + password + b"\0"
    for packet in (hello, _CLOSE_SESSION):
        writer.write(struct.pack(">i", len(packet)) + packet)
    await reader.read()
    writer.close()
