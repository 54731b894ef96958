"""Leader and followers together: what acks=all promises, and that no timer stands in its way."""

import asyncio

from tests.support.replica_cluster import ReplicaCluster

from klamm.model.errors import ErrorCode


def test_acks_all_completes_after_two_rounds_of_fetching_and_no_timer(run) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster.elect(1)
        await asyncio.sleep(1)
        start = asyncio.get_running_loop().time()

        assert await cluster.produce(1, b"a") is ErrorCode.NONE

        took = asyncio.get_running_loop().time() - start
        assert took <= 4 * cluster.delay_s
        assert cluster.log(1).high_watermark == 1
        await asyncio.sleep(1)
        for b in (1, 2, 3):
            assert cluster.log(b).fillers() == [b"a"]
            assert cluster.log(b).high_watermark == 1

    run(scenario)
