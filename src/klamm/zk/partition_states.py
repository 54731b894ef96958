"""Reads of partition states, many at a time: those of the controller, and of a node that is ready to become it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.zk import znodes
from klamm.zk.errors import ZkCode
from klamm.zk.fenced import chunks
from klamm.zk.port import ZooKeeperClient
from klamm.zk.znodes import MalformedZnode, PartitionLike

READ_CHUNK: Final = 1_000
"""States decoded between two awaits, which holds the loop for a few ms."""

P = TypeVar("P", bound=PartitionLike)


@dataclass(slots=True)
class StatesRead(Generic[P]):
    """Partition states read from ZooKeeper, and the partitions that could not be read."""

    found: dict[P, LeaderAndIsr] = field(default_factory=dict)
    unreadable: dict[P, str] = field(default_factory=dict)
    """Partitions without a state, with the reason: no znode, a malformed one, or a ZooKeeper error."""
    missing: set[P] = field(default_factory=set)
    """The unreadable partitions without a state znode."""
    not_shown: set[P] = field(default_factory=set)
    """The unreadable partitions for which ZooKeeper returned an error; a later read may succeed."""
    written_at: dict[P, int] = field(default_factory=dict)
    """The zxid of the last write of each state that was found."""


async def read_states(client: ZooKeeperClient, partitions: Iterable[P], watch: bool = False) -> StatesRead[P]:
    """Read the state znodes of these partitions."""
    read: StatesRead[P] = StatesRead()
    for chunk in chunks(partitions, READ_CHUNK):
        results = await client.get_many([znodes.state_path(p) for p in chunk], watch=watch)
        for partition, result in zip(chunk, results, strict=True):
            if result.code is not ZkCode.OK or result.stat is None:
                is_missing = result.code is ZkCode.NO_NODE
                read.unreadable[partition] = (
                    "no state znode" if is_missing else f"ZooKeeper answered {result.code.name}"
                )
                (read.missing if is_missing else read.not_shown).add(partition)
                continue
            try:
                read.found[partition] = znodes.decode_state(partition, result.data, result.stat.version)
                read.written_at[partition] = result.stat.mzxid
            except MalformedZnode as error:
                read.unreadable[partition] = str(error)
    return read
