"""`klamm controller reelect`: what the command does. A named node's part is `broker/controller_handover.py`."""

import asyncio

import pytest
from tests.support.memory_zookeeper import MemoryEnsemble, MemoryZooKeeper

from klamm.cli.admin.controller import hand_to, read_controller_status, reelect
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId
from klamm.sim.loop import SimulatedLoop
from klamm.zk.controller_handover import request_handover, watch_handover_request
from klamm.zk.election import register_controller, replace_controller
from klamm.zk.operations import Create, Delete
from klamm.zk.znodes import CONTROLLER, NEXT_CONTROLLER, broker_path

ONE, TWO = BrokerId(1), BrokerId(2)


class Cluster:
    """Broker 1 is controller, broker 2 is alive, and an operator has a session."""

    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        above = [Create("/brokers"), Create("/brokers/ids")]
        self.ensemble.apply([*above, *(Create(broker_path(b)) for b in (ONE, TWO))])
        self.operator = self.ensemble.client()

    async def elect(self) -> None:
        """Register broker 1 as controller in ZooKeeper."""
        await register_controller(self.ensemble.client(), ONE, 0)

    async def become_controller_when_requested(self, client: MemoryZooKeeper) -> None:
        while (request := await watch_handover_request(client)) is None:  # noqa: ASYNC110
            await asyncio.sleep(1)
        await replace_controller(client, TWO, 0, request.epoch)

    async def hand_to(self, broker: int) -> BrokerId | None:
        seen = await read_controller_status(self.operator)
        return (await hand_to(self.operator, seen, BrokerId(broker))).controller


def test_controller_reelect_makes_the_named_node_controller_and_removes_the_request_znode() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.elect()
        node = asyncio.get_running_loop().create_task(
            cluster.become_controller_when_requested(cluster.ensemble.client())
        )

        assert await cluster.hand_to(2) == 2
        await node
        assert NEXT_CONTROLLER not in cluster.ensemble.nodes

    SimulatedLoop().run(main())


@pytest.mark.parametrize(("broker", "why"), [(2, "broker 1 remains"), (3, "Broker 3 is not alive")])
def test_a_failed_controller_reelect_removes_its_request_znode(broker: int, why: str) -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.elect()

        with pytest.raises(KlammError, match=why):
            await cluster.hand_to(broker)
        assert NEXT_CONTROLLER not in cluster.ensemble.nodes

    SimulatedLoop().run(main())


def test_the_request_znode_of_controller_reelect_ends_with_its_zookeeper_session() -> None:
    """For example with a broker of Apache Kafka, which ignores the request."""

    async def main() -> None:
        cluster = Cluster()
        await cluster.elect()
        asking = asyncio.get_running_loop().create_task(cluster.hand_to(2))
        while NEXT_CONTROLLER not in cluster.ensemble.nodes:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        cluster.ensemble.expire(cluster.operator)

        assert NEXT_CONTROLLER not in cluster.ensemble.nodes

    SimulatedLoop().run(main())


@pytest.mark.parametrize("is_ours", [True, False], ids=["created by this command", "created by another session"])
def test_controller_reelect_does_not_replace_the_pending_request_of_another_session(is_ours: bool) -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.elect()
        asker = cluster.operator if is_ours else cluster.ensemble.client()
        await request_handover(asker, TWO, 1)

        if is_ours:
            node = asyncio.get_running_loop().create_task(
                cluster.become_controller_when_requested(cluster.ensemble.client())
            )
            assert await cluster.hand_to(2) == 2
            await node
        else:
            with pytest.raises(KlammError, match="another handover is running"):
                await cluster.hand_to(2)

    SimulatedLoop().run(main())


def test_controller_reelect_waits_for_a_controller_if_the_controller_znode_is_missing() -> None:
    """For example deleted by this command, when only the answer was lost."""

    async def main() -> None:
        cluster = Cluster()
        await cluster.elect()
        seen = await read_controller_status(cluster.operator)
        cluster.ensemble.apply([Delete(CONTROLLER)])
        asking = asyncio.get_running_loop().create_task(reelect(cluster.operator, seen))
        await asyncio.sleep(1)
        await cluster.elect()

        assert (await asking).epoch == 2

    SimulatedLoop().run(main())


def test_controller_reelect_does_not_remove_a_controller_elected_meanwhile() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.elect()
        seen = await read_controller_status(cluster.operator)
        cluster.ensemble.apply([Delete(CONTROLLER)])
        await cluster.elect()

        with pytest.raises(KlammError, match="Another controller was elected"):
            await reelect(cluster.operator, seen)
        assert CONTROLLER in cluster.ensemble.nodes

    SimulatedLoop().run(main())
