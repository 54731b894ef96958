"""Faults that send malformed frames: to a node's Kafka port, and from a ZooKeeper server to a node."""

import asyncio
import contextlib
import struct
from typing import Final

from klamm.runtime.randomness import Rng
from klamm.sim.actions import Draw, ScheduledCluster
from klamm.sim.faults.aim import draw_node
from klamm.sim.nodes.settings import PORT

_SILENCE_S: Final = 5.0
_UPDATE_METADATA_V8: Final = struct.pack(">hhih", 6, 8, 7, -1)

FRAMES: Final = {
    "too long": struct.pack(">i", 0x7FFFFFFF) + b"x" * 20,
    "negative length": struct.pack(">i", -5) + b"x" * 20,
    "empty": struct.pack(">i", 0),
    "cut short": struct.pack(">i", 500) + b"x" * 20,
    "unknown api": struct.pack(">ihhih", 10, 9_999, 3, 1, -1),
    "unknown version": struct.pack(">ihhih", 10, 4, 999, 1, -1),
    "no body": struct.pack(">i", len(_UPDATE_METADATA_V8)) + _UPDATE_METADATA_V8,
    "noise": struct.pack(">i", 64) + Rng(7).randbytes(64),
}
ANSWERS: Final = {
    "negative length": struct.pack(">i", -1),
    "too long": struct.pack(">i", 0x7FFFFFFF),
    "to nobody": struct.pack(">iiqi", 16, 0x7ABCDEF, 1, 0),
    "unknown event": struct.pack(">iiqiii", 28, -1, -1, 0, 99, 3) + struct.pack(">i", 0),
    "too short": struct.pack(">i", 3) + b"abc",
}


def malformed_frames(cluster: ScheduledCluster, draw: Draw) -> None:
    """A client sends frames that violate Kafka's protocol to a node, and keeps its connection for a while."""
    number, _ = draw_node(cluster, draw)
    kind = draw("kind", lambda rng: rng.choice(tuple(FRAMES)))

    async def send() -> None:
        """Connect to the node, send it a malformed frame, and close the connection after a while."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_SILENCE_S):
                sender = await cluster.admin.network.connect(_Sender, f"node-{number}", PORT)
                cluster.log(f"node {number} receives a malformed frame: {kind}")
                sender.transport.write(FRAMES[kind])
                await asyncio.sleep(_SILENCE_S)
                sender.transport.close()

    cluster.run_in_background(send(), "malformed frames")


class _Sender(asyncio.Protocol):
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the new connection."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport


def malformed_answers(cluster: ScheduledCluster, draw: Draw) -> None:
    """A ZooKeeper server sends an invalid frame."""
    number, node = draw_node(cluster, draw)
    kind = draw("kind", lambda rng: rng.choice(tuple(ANSWERS)))
    session = cluster.ensemble.sessions.get(node.session)
    if session is not None and session.holder is not None:
        cluster.log(f"node {number} receives a malformed reply from ZooKeeper: {kind}")
        session.holder.send_invalid_frame(ANSWERS[kind])
