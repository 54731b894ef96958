"""Whether this broker still leads a partition, asked before an answer from memory that a new leader could contradict.

A leader that is cut off does not hear of its successor. Its in-sync followers prove that there is none; where one of
them is silent, ZooKeeper tells. See decision 0031.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

import structlog

from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.replica_manager import ReplicaManager
from klamm.zk import znodes
from klamm.zk.partition_states import read_states
from klamm.zk.store import Store

log = structlog.get_logger("coordinator")

FOLLOWERS_S: Final = 0.05
"""After this time without a fetch of each in-sync follower, ZooKeeper is asked as well."""
TIMEOUT_S: Final = 1.0
"""After this time without an answer, the leadership is not confirmed: the client finds the coordinator again."""


class LeadershipCheck:
    def __init__(self, broker_id: BrokerId, replicas: ReplicaManager, store: Callable[[], Store]) -> None:
        """`store()` is that of the newest ZooKeeper session; raises KlammError where there is none."""
        self._broker_id = broker_id
        self._replicas = replicas
        self._leaders = LeaderReads(store)

    async def confirm(self, partition: TopicPartition) -> bool:
        """Whether it is certain that no other broker had become leader of the partition when this was called."""
        proof = self._replicas.prove_leadership(partition)
        if proof is None:
            return False
        try:
            return proof.proven.done() or await self._confirm(partition, proof.proven)
        finally:
            proof.leave()

    async def _confirm(self, partition: TopicPartition, proven: asyncio.Future[None]) -> bool:
        """Wait for the followers; after `FOLLOWERS_S` for ZooKeeper, too."""
        await asyncio.wait((proven,), timeout=FOLLOWERS_S)
        if proven.done():
            return True
        read = self._leaders.read(partition)
        left_s = TIMEOUT_S - FOLLOWERS_S
        until = asyncio.get_running_loop().time() + left_s
        await asyncio.wait((proven, read), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        if not proven.done() and read.done() and read.result() is None:
            await asyncio.wait((proven,), timeout=until - asyncio.get_running_loop().time())
        leader = read.result() if read.done() else None
        is_confirmed = proven.done() or leader == self._broker_id
        if not is_confirmed:
            log.info(
                "request refused with NOT_COORDINATOR: this broker cannot confirm that it still leads the partition",
                partition=str(partition),
                leader_in_zookeeper="unknown" if leader is None else leader,
            )
        return is_confirmed

    async def close(self) -> None:
        """Stop reading from ZooKeeper."""
        await self._leaders.close()


class LeaderReads:
    """Reads leaders from ZooKeeper; one read serves all that wait when it begins."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._waiting: dict[TopicPartition, asyncio.Future[BrokerId | None]] = {}
        self._task: asyncio.Task[None] | None = None

    def read(self, partition: TopicPartition) -> asyncio.Future[BrokerId | None]:
        """The leader as of now or later; None where ZooKeeper does not tell. Shared: do not cancel it."""
        loop = asyncio.get_running_loop()
        future = self._waiting.get(partition)
        if future is None:
            future = self._waiting[partition] = loop.create_future()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run(), name="leadership-check")
        return future

    async def close(self) -> None:
        """Stop reading; who waits gets no answer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        """Read until nobody waits."""
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            leaders: dict[TopicPartition, BrokerId] = {}
            try:
                leaders = await self._read(waiting)
            except KlammError as error:
                log.info("cannot read from ZooKeeper who leads a partition", reason=str(error))
            finally:
                for partition, future in waiting.items():
                    future.set_result(leaders.get(partition))

    async def _read(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, BrokerId]:
        """The leaders of these partitions in ZooKeeper, none older than this call. Raises KlammError."""
        client = self._store().client
        await client.sync(znodes.TOPICS)
        return {partition: state.leader for partition, state in (await read_states(client, partitions)).found.items()}
