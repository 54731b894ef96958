"""The leader, ISR and epochs of one partition, as a controller keeps them, with control requests that arrive late."""

import asyncio
import random
from collections.abc import Callable, Sequence

from tests.support.replica_cluster import P0, ReplicaCluster, alter_partition_response, leader_and_isr

from klamm.model.errors import ErrorCode
from klamm.replication.replica_manager import ReplicaManager
from klamm.wire.messages import AlterPartitionRequest, AlterPartitionResponse, LeaderAndIsrRequest


class StateKeeper:
    """Decides leader and ISR of one partition, and sends them to the brokers in order, each after a delay."""

    def __init__(self, cluster: ReplicaCluster, dice: random.Random, latest_s: float = 2.0) -> None:
        self.cluster = cluster
        self.leader: int | None = None
        self.leader_epoch = -1
        self.partition_epoch = 0
        self.isr: tuple[int, ...] = tuple(cluster.brokers)
        self.replicas = tuple(cluster.brokers)
        self.acknowledged: list[bytes] = []
        self._rng = dice
        self._latest_s = latest_s
        self._last_order: dict[int, asyncio.Task[None]] = {}
        cluster.controller.alter_partition = self.alter_partition  # type: ignore[method-assign]

    # ---- decisions

    def elect(self, leader: int | None = None) -> None:
        """Elect the given leader, or any of the ISR; nobody while none of them runs."""
        candidates = [b for b in self.isr if b in self.cluster.brokers]
        self.leader_epoch += 1
        self.partition_epoch += 1
        if not candidates:
            self.leader = None
            return
        self.leader = leader if leader in candidates else self._rng.choice(candidates)
        self._send_to_all()

    def on_crash(self, broker: int) -> None:
        """Take the broker out of the ISR, and elect a new leader if it was the leader."""
        if broker in self.isr and len(self.isr) > 1:
            self.isr = tuple(b for b in self.isr if b != broker)
        self.elect(None if self.leader in (broker, None) else self.leader)

    def on_start(self, broker: int) -> None:
        """Send the current state to a broker that started."""
        self._last_order.pop(broker, None)
        if self.leader is None:
            self.elect()
        else:
            self._send_to(broker)

    async def alter_partition(
        self, build: Callable[[int], AlterPartitionRequest], newest: int
    ) -> AlterPartitionResponse:
        request = AlterPartitionRequest.decode(build(newest).encode(newest), newest)
        await asyncio.sleep(self._rng.random() * self._latest_s / 2)
        asked = request.topics[0].partitions[0]
        isr = tuple(b.broker_id for b in asked.new_isr_with_epochs)
        error = ErrorCode.NONE
        if request.broker_id != self.leader or asked.leader_epoch != self.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif asked.partition_epoch != self.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif not all(b in self.cluster.brokers for b in isr):
            error = ErrorCode.INELIGIBLE_REPLICA
        if not error:
            self.isr = isr
            self.partition_epoch += 1
        response = alter_partition_response(request, error)
        response.topics[0].partitions[0].partition_epoch = self.partition_epoch
        await asyncio.sleep(self._rng.random() * self._latest_s / 2)
        return response

    # ---- orders

    def _send_to_all(self) -> None:
        for broker in self.replicas:
            if broker in self.cluster.brokers:
                self._send_to(broker)

    def _send_to(self, broker: int) -> None:
        assert self.leader is not None
        request = leader_and_isr(self.leader, self.isr, self.replicas, self.leader_epoch, self.partition_epoch)
        before = self._last_order.get(broker)
        delay_s = self._rng.random() * self._latest_s
        work = self._deliver(broker, self.cluster.brokers[broker], request, delay_s, before)
        self._last_order[broker] = asyncio.create_task(work)

    async def _deliver(
        self,
        broker: int,
        manager: ReplicaManager,
        request: LeaderAndIsrRequest,
        delay_s: float,
        before: asyncio.Task[None] | None,
    ) -> None:
        """Deliver a LeaderAndIsr after its delay, and after the previous one."""
        if before is not None:
            await before
        await asyncio.sleep(delay_s)
        if self.cluster.brokers.get(broker) is manager:
            await manager.become_leader_or_follower(request, 7)

    # ---- what is promised

    def check(self) -> None:
        """Assert that the ISR's members have every acknowledged record, and the leader's ISR contains the true one."""
        for broker in self.isr:
            if broker not in self.cluster.brokers:
                continue
            held = set(self.values_on(broker))
            lost = [v for v in self.acknowledged if v not in held]
            assert not lost, f"broker {broker} of the ISR {self.isr} lacks {lost}"
        for broker in self.cluster.brokers:
            partition = self.cluster.brokers[broker].partition(P0)
            if partition is None or partition.log is None:
                continue
            assert partition.log.high_watermark <= partition.log.end_offset
            if partition.is_leader and partition.leader_epoch == self.leader_epoch:
                assert set(partition.isr_state.maximal) >= set(self.isr)
        self._check_equal_logs()

    def values_on(self, broker: int) -> Sequence[bytes]:
        """The record values in the log of a broker."""
        return self.cluster.values(broker)

    def _check_equal_logs(self) -> None:
        """Assert that the logs of all replicas are equal."""
        logs = {b: self.cluster.log(b) for b in self.cluster.brokers}
        for a in logs:
            for b in logs:
                if a < b:
                    common = min(logs[a].high_watermark, logs[b].high_watermark)
                    assert self.values_on(a)[:common] == self.values_on(b)[:common], (
                        f"{a} and {b} differ below {common}"
                    )
