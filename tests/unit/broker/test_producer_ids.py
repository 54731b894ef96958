"""Each id once, from blocks fetched ahead."""

import asyncio

from klamm.broker.producer_ids import ProducerIdBlock, ProducerIds
from klamm.sim.loop import SimulatedLoop


class Controller:
    def __init__(self) -> None:
        self.given = 0
        self.open = asyncio.Event()
        self.open.set()

    async def allocate(self) -> ProducerIdBlock | None:
        await self.open.wait()
        self.given += 1
        return ProducerIdBlock(1000 * (self.given - 1), 10)


async def test_producer_ids_given_out_from_several_blocks_never_repeat() -> None:
    controller = Controller()
    ids = ProducerIds(controller.allocate)

    given = [await ids.next_id() for _ in range(25)]

    assert given == [*range(10), *range(1000, 1010), *range(2000, 2005)]


async def test_the_next_producer_id_block_is_requested_before_the_current_block_is_exhausted() -> None:
    controller = Controller()
    ids = ProducerIds(controller.allocate)
    for _ in range(9):
        await ids.next_id()
    await asyncio.sleep(0)

    assert controller.given == 2
    controller.open.clear()
    assert [await ids.next_id() for _ in range(3)] == [9, 1000, 1001]


async def test_concurrent_init_producer_id_requests_get_different_producer_ids() -> None:
    ids = ProducerIds(Controller().allocate)

    given = await asyncio.gather(*(ids.next_id() for _ in range(8)))

    assert sorted(i for i in given if i is not None) == list(range(8))


class Exhausted:
    """Has no block to give until `repaired`."""

    def __init__(self) -> None:
        self.asked = 0
        self.repaired = False

    async def allocate(self) -> ProducerIdBlock | None:
        self.asked += 1
        return ProducerIdBlock(5000, 10) if self.repaired else None


def test_a_refused_request_for_a_producer_id_block_is_retried_with_backoff() -> None:
    async def scenario() -> None:
        controller = Exhausted()
        ids = ProducerIds(controller.allocate)
        for _ in range(30):  # a producer that does not give up: a minute
            assert await ids.next_id() is None
            await asyncio.sleep(0.1)
        assert 20 < controller.asked < 100
        await asyncio.sleep(5)
        asked = controller.asked
        await asyncio.sleep(600)
        assert controller.asked == asked

        controller.repaired = True
        assert await ids.next_id() == 5000
        ids.close()

    SimulatedLoop().run(scenario())


def test_a_waiting_producer_gets_its_id_once_the_controller_allocates_a_block() -> None:
    async def scenario() -> None:
        controller = Exhausted()
        ids = ProducerIds(controller.allocate)
        asyncio.get_running_loop().call_later(1, setattr, controller, "repaired", True)
        assert await ids.next_id() == 5000
        ids.close()

    SimulatedLoop().run(scenario())
