"""The two znodes where old tools put requests: reassignments and preferred elections.

Source: KafkaZkClient.getPartitionReassignment, setOrCreatePartitionReassignment, deletePreferredReplicaElection (3.9).
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from klamm.zk.errors import NoNode, WriteRefused, ZkCode
from klamm.zk.fenced import FencedWriter
from klamm.zk.operations import Delete, Op, Set
from klamm.zk.port import ZooKeeperClient


class Remainder(Enum):
    """What remains of a request if it is not a changed payload: all of it, or nothing."""

    AS_IT_IS = "as it is"
    NOTHING = "nothing"


class ToolRequest(NamedTuple):
    """A stored request, with the version of its znode."""

    payload: bytes | None
    version: int


class ToolRequestStore:
    """Reads and fenced changes of the two znodes."""

    def __init__(self, client: ZooKeeperClient, writer: FencedWriter) -> None:
        self._client = client
        self._writer = writer

    async def read(self, path: str) -> ToolRequest | None:
        """The tool's request at this path, or None; its next creation, change or deletion is watched."""
        while await self._client.exists(path, watch=True) is not None:
            try:
                data, stat = await self._client.get(path)
            except NoNode:
                continue  # its going spent the watch
            return ToolRequest(data, stat.version)
        return None

    async def change(self, path: str, remainder: Callable[[bytes | None], bytes | Remainder]) -> bool:
        """Replace a tool's request by what `remainder` returns for its content; returns whether it was changed.

        The write is guarded by the version read, so that a newer request is not lost. Raises ControllerMoved,
        WriteRefused.
        """
        while True:
            try:
                payload, stat = await self._client.get(path)
            except NoNode:
                return False
            left = remainder(payload)
            if left is Remainder.AS_IT_IS:
                return False
            op: Op = Delete(path, stat.version) if left is Remainder.NOTHING else Set(path, left, stat.version)
            [result] = await self._writer.write([op])
            if result.code in (ZkCode.OK, ZkCode.NO_NODE):
                return True
            if result.code is not ZkCode.BAD_VERSION:
                raise WriteRefused(
                    f"{path} cannot be {'removed' if isinstance(op, Delete) else 'changed'}: {result.code.name}"
                )


def remove_unless_changed(found: ToolRequest) -> Callable[[bytes | None], Remainder]:
    """Return a function that says: remove the request if its znode still has the content that was read."""
    return lambda now: Remainder.NOTHING if now == found.payload else Remainder.AS_IT_IS
