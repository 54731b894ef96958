"""ISR changes of old protocol versions: the leader writes its partition's state itself, and says so once in a while.

Since 2.7-IV2 the controller is asked instead. Source: ZkAlterPartitionManager.scala, ReplicationUtils.scala (3.9).
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from klamm.zk.errors import BadVersion, NoNode
from klamm.zk.fenced import chunks
from klamm.zk.store import Store
from klamm.zk.znodes import ISR_CHANGES

CHECK_S: Final = 2.5
QUIET_S: Final = 5.0
LONGEST_S: Final = 60.0
TOLD_AT_ONCE: Final = 2_000
"""Partitions in one notice: with the longest names it stays below what ZooKeeper takes."""
_NAMES_TOPICS: Final = 1  # the newest AlterPartition that names topics instead of their ids
_AT_ONCE: Final = 100
log = structlog.get_logger("isr")


class _Asked(NamedTuple):
    partition: TopicPartition
    data: AlterPartitionRequestPartitionData


class IsrZnodes:
    """`send` stands in for asking the controller; `start` begins the telling."""

    def __init__(self, store: Callable[[], Store], broker_id: int) -> None:
        """`store()` is that of the newest ZooKeeper session; raises KlammError where there is none."""
        self._store = store
        self._broker_id = broker_id
        self._changed: dict[TopicPartition, None] = {}
        self._last_change = 0.0
        self._last_told = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._last_told = loop.time()
        self._task = loop.create_task(self._tell_on(), name="isr-change-propagation")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def send(self, build: Callable[[int], AlterPartitionRequest], _newest: int) -> AlterPartitionResponse:
        """Write what is proposed; answered as a controller would. Raises KlammError where ZooKeeper is away.

        The controller's orders may be faster than our ZooKeeper server: what it shows first may be older than they are.
        """
        request = build(_NAMES_TOPICS)
        await self._store().sync(ISR_CHANGES)
        asked = [
            _Asked(TopicPartition(t.topic_name, p.partition_index), p) for t in request.topics for p in t.partitions
        ]
        topics: dict[str, AlterPartitionResponseTopicData] = {}
        for start in range(0, len(asked), _AT_ONCE):
            chunk = asked[start : start + _AT_ONCE]
            for item, answer in zip(chunk, await asyncio.gather(*map(self._change, chunk)), strict=True):
                name = item.partition.topic
                topics.setdefault(name, AlterPartitionResponseTopicData(topic_name=name)).partitions.append(answer)
        return AlterPartitionResponse(topics=list(topics.values()))

    async def _change(self, asked: _Asked) -> AlterPartitionResponsePartitionData:
        """Where the znode is as we know it; a write of ours whose answer was lost counts."""
        try:
            written = await self._write_or_find(asked)
        except (BadVersion, NoNode) as error:
            log.info("ISR change refused", partition=str(asked.partition), reason=str(error))
            written = None
        if written is not None:
            return self._done(asked, written)
        return AlterPartitionResponsePartitionData(
            partition_index=asked.partition.partition, error_code=ErrorCode.INVALID_UPDATE_VERSION
        )

    async def _write_or_find(self, asked: _Asked) -> LeaderAndIsr | None:
        """What is stored now; None where another has written.

        A write whose answer was lost is sent again by the client, and refused then: what is stored tells whose it was.
        """
        stored = await self._read(asked.partition)
        if stored.leader != self._broker_id:
            return None  # epochs do not tell that of a topic made anew: they begin again
        if _is_next(stored, asked.data):
            return stored
        if (stored.leader_epoch, stored.partition_epoch) != (asked.data.leader_epoch, asked.data.partition_epoch):
            return None
        wanted = _wanted(stored, asked.data)
        try:
            version = await self._store().write_state(asked.partition, wanted, stored.partition_epoch)
        except BadVersion:
            await self._store().sync(ISR_CHANGES)
            stored = await self._read(asked.partition)
            return stored if _is_next(stored, asked.data) else None
        return wanted.at_partition_epoch(version)

    async def _read(self, partition: TopicPartition) -> LeaderAndIsr:
        return await self._store().read_state(partition)

    def _done(self, asked: _Asked, state: LeaderAndIsr) -> AlterPartitionResponsePartitionData:
        self._changed[asked.partition] = None
        self._last_change = asyncio.get_running_loop().time()
        return AlterPartitionResponsePartitionData(
            partition_index=asked.partition.partition,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            leader_recovery_state=int(state.recovery),
            partition_epoch=state.partition_epoch,
        )

    async def _tell_on(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                await self.tell()
            except KlammError as error:
                log.warning("the controller does not know of changed ISRs yet", reason=str(error))

    async def tell(self) -> None:
        """All that changed in few notices, when it is quiet or has not been for long. Raises KlammError."""
        now = asyncio.get_running_loop().time()
        is_due = now - self._last_change > QUIET_S or now - self._last_told > LONGEST_S
        if not self._changed or not is_due:
            return
        for told in chunks(list(self._changed), TOLD_AT_ONCE):
            await self._store().announce_isr_changes(told)
            for partition in told:
                self._changed.pop(partition, None)
        self._last_told = now


def _is_next(stored: LeaderAndIsr, data: AlterPartitionRequestPartitionData) -> bool:
    """What was asked for is there, one version on: nobody else writes just that."""
    is_ours = stored.leader_epoch == data.leader_epoch and stored.partition_epoch == data.partition_epoch + 1
    return is_ours and stored == _wanted(stored, data)


def _wanted(stored: LeaderAndIsr, data: AlterPartitionRequestPartitionData) -> LeaderAndIsr:
    """The decision stays the controller's: its epoch, the leader and its epoch are kept."""
    return stored._replace(isr=tuple(BrokerId(b) for b in data.new_isr))
