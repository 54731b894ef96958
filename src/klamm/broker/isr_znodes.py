"""ISR changes of old protocol versions: the leader writes the partition state, and notifies the controller in batches.

Since 2.7-IV2 the controller is asked instead. Source: ZkAlterPartitionManager.scala, ReplicationUtils.scala (3.9).
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr, LeaderRecoveryState
from klamm.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from klamm.zk.errors import BadVersion, NoAuth, NoNode
from klamm.zk.fenced import chunks
from klamm.zk.store import Store
from klamm.zk.znodes import ISR_CHANGES, MalformedZnode

CHECK_INTERVAL_S: Final = 2.5
MIN_QUIET_S: Final = 5.0
MAX_DELAY_S: Final = 60.0
MAX_PARTITIONS_PER_NOTIFICATION: Final = 2_000
"""With the longest topic names, a notification stays below ZooKeeper's limit of a znode."""
_LAST_WITH_TOPIC_NAMES: Final = 1  # the newest AlterPartition that names topics instead of their ids
_MAX_CONCURRENT_WRITES: Final = 100
log = structlog.get_logger("isr")


class _Proposal(NamedTuple):
    """One partition of an AlterPartition request."""

    partition: TopicPartition
    data: AlterPartitionRequestPartitionData


class IsrZnodes:
    """Replaces AlterPartition requests to the controller by ZooKeeper writes: `send` has the same effect."""

    def __init__(self, store: Callable[[], Store], broker_id: int) -> None:
        """`store()` is that of the newest ZooKeeper session; raises KlammError where there is none."""
        self._store = store
        self._broker_id = broker_id
        self._changed: dict[TopicPartition, None] = {}
        self._last_change = 0.0
        self._last_notified = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task that writes ISR change notifications."""
        loop = asyncio.get_running_loop()
        self._last_notified = loop.time()
        self._task = loop.create_task(self._notify_in_loop(), name="isr-change-propagation")

    async def close(self) -> None:
        """Stop the task that writes ISR change notifications; those not yet written are lost."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def send(self, build: Callable[[int], AlterPartitionRequest], _newest: int) -> AlterPartitionResponse:
        """Write the proposed ISRs to ZooKeeper, and answer as a controller would.

        Raises KlammError without ZooKeeper. LeaderAndIsr may arrive before this broker's ZooKeeper server has the state
        that it names, so sync first.
        """
        request = build(_LAST_WITH_TOPIC_NAMES)
        await self._store().sync(ISR_CHANGES)
        requested = [
            _Proposal(TopicPartition(t.topic_name, p.partition_index), p) for t in request.topics for p in t.partitions
        ]
        topics: dict[str, AlterPartitionResponseTopicData] = {}
        for start in range(0, len(requested), _MAX_CONCURRENT_WRITES):
            chunk = requested[start : start + _MAX_CONCURRENT_WRITES]
            for item, answer in zip(chunk, await asyncio.gather(*map(self._change_isr, chunk)), strict=True):
                name = item.partition.topic
                topics.setdefault(name, AlterPartitionResponseTopicData(topic_name=name)).partitions.append(answer)
        return AlterPartitionResponse(topics=list(topics.values()))

    async def _change_isr(self, requested: _Proposal) -> AlterPartitionResponsePartitionData:
        """Write one proposed ISR; succeeds where the znode has the known version, or already holds the proposed ISR.

        A znode that cannot be read does not hold up the changes of other partitions.
        """
        refusal = ErrorCode.INVALID_UPDATE_VERSION
        try:
            written = await self._write_or_confirm(requested)
        except (BadVersion, NoNode, MalformedZnode, NoAuth) as error:
            log.info(
                "ISR change was not written to ZooKeeper: the partition's state znode changed, is gone or unreadable",
                partition=str(requested.partition),
                reason=str(error),
            )
            written = None
            if isinstance(error, NoAuth):
                refusal = ErrorCode.OPERATION_NOT_ATTEMPTED  # the leader proposes it again
        if written is not None:
            return self._record_change(requested, written)
        return AlterPartitionResponsePartitionData(partition_index=requested.partition.partition, error_code=refusal)

    async def _write_or_confirm(self, requested: _Proposal) -> LeaderAndIsr | None:
        """The stored state after the write; None where another writer has changed it.

        A write that was repeated after a lost response fails: the stored state then shows whether it was ours.
        """
        stored = await self._read(requested.partition)
        if stored.leader != self._broker_id:
            return None  # a recreated topic starts its epochs again, so they cannot tell
        if _is_own_write(stored, requested.data):
            return stored
        if (stored.leader_epoch, stored.partition_epoch) != (
            requested.data.leader_epoch,
            requested.data.partition_epoch,
        ):
            return None
        proposed = _proposed_state(stored, requested.data)
        try:
            version = await self._store().write_state(requested.partition, proposed, stored.partition_epoch)
        except BadVersion:
            await self._store().sync(ISR_CHANGES)
            stored = await self._read(requested.partition)
            return stored if _is_own_write(stored, requested.data) else None
        return proposed.at_partition_epoch(version)

    async def _read(self, partition: TopicPartition) -> LeaderAndIsr:
        """The partition state in ZooKeeper."""
        return await self._store().read_state(partition)

    def _record_change(self, requested: _Proposal, state: LeaderAndIsr) -> AlterPartitionResponsePartitionData:
        """Remember the change for the next notification, and build its response."""
        self._changed[requested.partition] = None
        self._last_change = asyncio.get_running_loop().time()
        return AlterPartitionResponsePartitionData(
            partition_index=requested.partition.partition,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            leader_recovery_state=int(state.recovery),
            partition_epoch=state.partition_epoch,
        )

    async def _notify_in_loop(self) -> None:
        """Notify the controller periodically; errors are logged and retried."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            try:
                await self.notify()
            except KlammError as error:
                log.warning("cannot notify the controller of changed ISRs; retrying", reason=str(error))

    async def notify(self) -> None:
        """Notify the controller of all changes, once they pause or have waited for long. Raises KlammError."""
        now = asyncio.get_running_loop().time()
        is_due = now - self._last_change > MIN_QUIET_S or now - self._last_notified > MAX_DELAY_S
        if not self._changed or not is_due:
            return
        for partitions in chunks(list(self._changed), MAX_PARTITIONS_PER_NOTIFICATION):
            await self._store().announce_isr_changes(partitions)
            for partition in partitions:
                self._changed.pop(partition, None)
        self._last_notified = now


def _is_own_write(stored: LeaderAndIsr, data: AlterPartitionRequestPartitionData) -> bool:
    """Whether the stored state is the proposed one, one version later: no other writer produces that."""
    is_ours = stored.leader_epoch == data.leader_epoch and stored.partition_epoch == data.partition_epoch + 1
    return is_ours and stored == _proposed_state(stored, data)


def _proposed_state(stored: LeaderAndIsr, data: AlterPartitionRequestPartitionData) -> LeaderAndIsr:
    """Return the stored state with the proposed ISR; controller epoch, leader and leader epoch stay.

    A leader that proposes an ISR has recovered: a controller with a newer protocol may have elected it uncleanly.
    """
    isr = tuple(BrokerId(b) for b in data.new_isr)
    return stored._replace(isr=isr, recovery=LeaderRecoveryState.RECOVERED)
