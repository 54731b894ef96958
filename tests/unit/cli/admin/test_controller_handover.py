"""`klamm controller reelect`: what the command does. A named node's part is `broker/office_requests.py`."""

import asyncio

import pytest
from tests.support.memory_zookeeper import MemoryEnsemble, MemoryZooKeeper

from klamm.cli.admin.controller import hand_to, read_office, reelect
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId
from klamm.sim.loop import SimulatedLoop
from klamm.zk.election import register_controller, replace_controller
from klamm.zk.office_requests import ask_for_office, watch_office_request
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
        await register_controller(self.ensemble.client(), ONE, 0)  # type: ignore[arg-type]

    async def take_when_asked(self, client: MemoryZooKeeper) -> None:
        while (request := await watch_office_request(client)) is None:  # type: ignore[arg-type]  # noqa: ASYNC110
            await asyncio.sleep(1)
        await replace_controller(client, TWO, 0, request.epoch)  # type: ignore[arg-type]

    async def hand_to(self, broker: int) -> BrokerId | None:
        seen = await read_office(self.operator)  # type: ignore[arg-type]
        return (await hand_to(self.operator, seen, BrokerId(broker))).controller  # type: ignore[arg-type]


def test_the_node_that_is_named_has_it_and_no_wish_is_left() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.elect()
        node = asyncio.get_running_loop().create_task(cluster.take_when_asked(cluster.ensemble.client()))

        assert await cluster.hand_to(2) == 2
        await node
        assert NEXT_CONTROLLER not in cluster.ensemble.nodes

    SimulatedLoop().run(main())


@pytest.mark.parametrize(("broker", "why"), [(2, "broker 1 keeps it"), (3, "broker 3 is not alive")])
def test_whoever_does_not_take_it_is_not_waited_for_in_zookeeper(broker: int, why: str) -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.elect()

        with pytest.raises(KlammError, match=why):
            await cluster.hand_to(broker)
        assert NEXT_CONTROLLER not in cluster.ensemble.nodes

    SimulatedLoop().run(main())


def test_a_wish_goes_with_whoever_gave_up_waiting() -> None:
    """As where a broker of Apache Kafka was named: nobody is to stumble over it, or to take the office later."""

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


@pytest.mark.parametrize("is_ours", [True, False], ids=["whose answer was lost", "of somebody else"])
def test_a_wish_that_is_there_is_somebody_elses_only_where_another_session_keeps_it(is_ours: bool) -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.elect()
        asker = cluster.operator if is_ours else cluster.ensemble.client()
        await ask_for_office(asker, TWO, 1)  # type: ignore[arg-type]

        if is_ours:
            node = asyncio.get_running_loop().create_task(cluster.take_when_asked(cluster.ensemble.client()))
            assert await cluster.hand_to(2) == 2
            await node
        else:
            with pytest.raises(KlammError, match="somebody else asks"):
                await cluster.hand_to(2)

    SimulatedLoop().run(main())


def test_an_office_that_is_free_is_waited_for_whoever_freed_it() -> None:
    """Ourselves, where only the answer was lost."""

    async def main() -> None:
        cluster = Cluster()
        await cluster.elect()
        seen = await read_office(cluster.operator)  # type: ignore[arg-type]
        cluster.ensemble.apply([Delete(CONTROLLER)])
        asking = asyncio.get_running_loop().create_task(reelect(cluster.operator, seen))  # type: ignore[arg-type]
        await asyncio.sleep(1)
        await cluster.elect()

        assert (await asking).epoch == 2

    SimulatedLoop().run(main())


def test_an_office_that_another_has_by_now_is_left_alone() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.elect()
        seen = await read_office(cluster.operator)  # type: ignore[arg-type]
        cluster.ensemble.apply([Delete(CONTROLLER)])
        await cluster.elect()

        with pytest.raises(KlammError, match="changed hands"):
            await reelect(cluster.operator, seen)  # type: ignore[arg-type]
        assert CONTROLLER in cluster.ensemble.nodes

    SimulatedLoop().run(main())
