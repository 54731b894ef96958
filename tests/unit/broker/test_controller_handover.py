"""A node becomes controller when an operator names it; and only then."""

import asyncio

from tests.support.memory_zookeeper import MemoryEnsemble, MemoryZooKeeper

from klamm.broker.controller_handover import ControllerHandover
from klamm.model.ids import BrokerId
from klamm.sim.loop import SimulatedLoop
from klamm.zk.controller_handover import request_handover
from klamm.zk.operations import Create, Delete
from klamm.zk.store import Store
from klamm.zk.znodes import NEXT_CONTROLLER


class Room:
    """Broker 1, and an operator."""

    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.session: MemoryZooKeeper = self.ensemble.client()
        self.requests = ControllerHandover(lambda: Store(self.session), BrokerId(1), self)
        self.session.on_watch = self.requests.on_watch
        self.asked: list[int] = []

    async def become_controller(self, epoch: int) -> bool:
        self.asked.append(epoch)
        return False

    async def ask(self, broker: int, epoch: int) -> None:
        """Write a handover request."""
        await request_handover(self.ensemble.client(), BrokerId(broker), epoch)
        await asyncio.sleep(1)


def test_a_request_to_become_controller_is_carried_out_once_and_removed() -> None:
    async def main() -> None:
        room = Room()
        room.requests.start()
        await asyncio.sleep(1)
        for epoch in (7, 8):
            await room.ask(1, epoch)
            assert NEXT_CONTROLLER not in room.ensemble.nodes

        assert room.asked == [7, 8]
        await room.requests.close()

    SimulatedLoop().run(main())


def test_a_request_to_become_controller_that_cannot_be_removed_is_carried_out_once() -> None:
    """What was not done then, in an epoch that goes on, is not done a second later."""

    async def main() -> None:
        room = Room()
        room.requests.start()
        room.ensemble.unwritable.add(NEXT_CONTROLLER)
        operator = room.ensemble.client()
        room.ensemble.apply([Create("/klamm"), Create(NEXT_CONTROLLER, b'{"version":1,"broker":1,"epoch":7}')])
        await asyncio.sleep(5)
        assert room.asked == [7]

        room.ensemble.unwritable.clear()
        await asyncio.sleep(2)
        assert NEXT_CONTROLLER not in room.ensemble.nodes
        await request_handover(operator, BrokerId(1), 7)
        await asyncio.sleep(1)

        assert room.asked == [7, 7]
        await room.requests.close()

    SimulatedLoop().run(main())


def test_a_request_that_another_broker_become_controller_is_ignored() -> None:
    async def main() -> None:
        room = Room()
        room.requests.start()
        await room.ask(2, 7)
        assert (room.asked, NEXT_CONTROLLER in room.ensemble.nodes) == ([], True)
        room.ensemble.apply([Delete(NEXT_CONTROLLER)])
        room.ensemble.apply([Create(NEXT_CONTROLLER, b"{nonsense")])
        await asyncio.sleep(1)
        room.ensemble.apply([Delete(NEXT_CONTROLLER)])
        await asyncio.sleep(1)
        await room.ask(1, 8)

        assert room.asked == [8]
        await room.requests.close()

    SimulatedLoop().run(main())
