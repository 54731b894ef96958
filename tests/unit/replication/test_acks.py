"""What each value of acks promises, and min.insync.replicas."""

import asyncio

from tests.support.replica_cluster import P0, ReplicaCluster, ids
from tests.unit.replication.fetching import now
from tests.unit.replication.runs import Run

from klamm.model.errors import ErrorCode
from klamm.replication.isr import Committed

NONE = ErrorCode.NONE


def test_a_produce_with_acks_all_completes_after_two_rounds_of_fetches_without_a_timer(run_on: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        await asyncio.sleep(1)
        for value in (b"a", b"b", b"c"):
            start = now()
            assert await cluster.produce(1, value) is NONE
            assert now() - start <= 4 * cluster.delay_s
        assert cluster.log(1).high_watermark == 3
        await asyncio.sleep(1)
        for b in (1, 2, 3):
            assert cluster.values(b) == [b"a", b"b", b"c"]
            assert cluster.log(b).high_watermark == 3

    run_on(scenario)


def test_a_produce_with_acks_1_or_0_does_not_wait_for_followers(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, tell=[1])
        assert await cluster.produce(1, acks=1) is NONE
        assert await cluster.produce(1, acks=0) is NONE
        assert now() == 0
        assert cluster.log(1).high_watermark == 0

    run(scenario)


def test_a_produce_with_acks_2_gets_invalid_required_acks(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, tell=[1])
        assert await cluster.produce(1, acks=2) is ErrorCode.INVALID_REQUIRED_ACKS
        assert cluster.log(1).end_offset == 0

    run(scenario)


def test_a_produce_with_acks_all_to_a_single_replica_completes_at_once(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1,), (1,))
        assert await cluster.produce(1) is NONE
        assert (now(), cluster.log(1).high_watermark) == (0, 1)

    run(scenario)


def test_a_produce_with_acks_all_not_replicated_in_time_gets_request_timed_out(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, tell=[1])
        assert await cluster.produce(1, timeout_ms=700) is ErrorCode.REQUEST_TIMED_OUT
        assert now() == 0.7
        assert await cluster.produce(1, timeout_ms=0) is ErrorCode.REQUEST_TIMED_OUT

    run(scenario)


def test_a_produce_to_a_follower_gets_not_leader_or_follower(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        assert await cluster.produce(2) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_a_produce_returns_record_errors_and_storage_errors_of_the_log(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1,), (1,))
        cluster.make_batch = lambda *a, **k: b""
        manager = cluster.brokers[1]
        (result,) = (await manager.append(-1, 100, {cluster.partition(1).topic_partition: b""})).values()
        assert (result.error, result.record_errors) == (ErrorCode.INVALID_RECORD, ((0, "nothing there"),))
        cluster.log(1).is_broken = True
        cluster.make_batch = lambda *a, **k: b"x"
        assert await cluster.produce(1) is ErrorCode.KAFKA_STORAGE_ERROR
        assert await cluster.produce(1) is ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario)


def test_the_error_of_a_refused_append_names_its_partition_once(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1,), (1, 2))
        messages = [(await cluster.brokers[b].append(1, 100, {P0: b""}))[P0].message for b in (1, 2)]
        assert messages == ["orders-0: no batch", "orders-0 is not led by this broker"]

    run(scenario)


# ---- min.insync.replicas


def test_a_produce_below_min_isr_gets_not_enough_replicas_and_writes_nothing(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1,), tell=[1])
        assert await cluster.produce(1) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert cluster.log(1).end_offset == 0

    run(scenario, min_insync_replicas=2)


def test_the_high_watermark_does_not_advance_below_min_isr(run: Run) -> None:
    """KAFKA-15583: acks=1 succeeds, the high watermark stays; also while a second member is only proposed."""

    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.controller.held = asyncio.Event()
        await cluster.elect(1, (1,), (1, 2))
        assert await cluster.produce(1, acks=1) is NONE
        await asyncio.sleep(3)
        assert cluster.partition(1).isr_state.maximal == (1, 2)
        assert (cluster.log(2).end_offset, cluster.log(1).high_watermark) == (1, 0)
        cluster.controller.held.set()
        await asyncio.sleep(1)
        assert cluster.log(1).high_watermark == 1

    run(scenario, min_insync_replicas=2)


def test_records_are_not_acknowledged_while_an_unassigned_broker_is_in_the_isr(run: Run) -> None:
    """A reassignment completes: replica 3 is not assigned any more; a controller may still elect it from the ISR."""

    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        assert await cluster.produce(1) is NONE
        cluster.controller.held = asyncio.Event()
        await cluster.elect(1, (1, 2, 3), (1, 2))
        assert await cluster.produce(1, timeout_ms=20_000) is ErrorCode.REQUEST_TIMED_OUT
        assert cluster.log(1).high_watermark == 1

        cluster.controller.held.set()  # the leader has proposed an ISR without replica 3
        assert await cluster.produce(1) is NONE
        assert (cluster.isr(1), cluster.log(1).high_watermark) == ((1, 2), 3)

    run(scenario, min_insync_replicas=2)


def test_the_effective_min_isr_is_bounded_by_the_replication_factor(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1,), (1,))
        assert await cluster.produce(1) is NONE

    run(scenario, min_insync_replicas=2)


def test_an_isr_shrink_below_min_isr_after_the_append_gets_not_enough_replicas_after_append(run: Run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1, (1, 2), (1, 2), tell=[1])
        produced = asyncio.create_task(cluster.produce(1))
        await asyncio.sleep(0.1)
        partition = cluster.partition(1)
        partition.isr_state = Committed(ids(1))
        cluster.log(1).high_watermark = 1
        partition.check_waiting_produces()
        assert await produced is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    run(scenario, min_insync_replicas=2)
