"""The two znodes in which old tools leave requests: reassignments and preferred elections.

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
    """What stays of a request that is changed, where it is not another payload."""

    AS_IT_IS = "as it is"
    NOTHING = "nothing"


class ToolRequest(NamedTuple):
    payload: bytes | None
    version: int


class ToolRequestStore:
    """Fenced reads and changes of the two znodes."""

    def __init__(self, client: ZooKeeperClient, writer: FencedWriter) -> None:
        self._client = client
        self._writer = writer

    async def read(self, path: str) -> ToolRequest | None:
        """None where there is none. Its coming, its change and its going are watched from here on."""
        while await self._client.exists(path, watch=True) is not None:
            try:
                data, stat = await self._client.get(path)
            except NoNode:
                continue  # its going spent the watch
            return ToolRequest(data, stat.version)
        return None

    async def change(self, path: str, rest: Callable[[bytes | None], bytes | Remainder]) -> bool:
        """Whether it was changed: `rest` says what of a payload stays.

        Guarded by the version read: what a tool asks for meanwhile is not lost. Raises ControllerMoved, WriteRefused.
        """
        while True:
            try:
                payload, stat = await self._client.get(path)
            except NoNode:
                return False
            left = rest(payload)
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


def unless_changed(found: ToolRequest) -> Callable[[bytes | None], Remainder]:
    """What stays of a request that was read before and is settled."""
    return lambda now: Remainder.NOTHING if now == found.payload else Remainder.AS_IT_IS
