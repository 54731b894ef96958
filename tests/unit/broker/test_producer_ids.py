"""Each id once, from blocks fetched ahead."""

import asyncio

from klamm.broker.producer_ids import ProducerIdBlock, ProducerIds


class Controller:
    def __init__(self) -> None:
        self.given = 0
        self.open = asyncio.Event()
        self.open.set()

    async def allocate(self) -> ProducerIdBlock | None:
        await self.open.wait()
        self.given += 1
        return ProducerIdBlock(1000 * (self.given - 1), 10)


async def test_ids_run_through_blocks_without_repeating() -> None:
    controller = Controller()
    ids = ProducerIds(controller.allocate)

    given = [await ids.next_id() for _ in range(25)]

    assert given == [*range(10), *range(1000, 1010), *range(2000, 2005)]


async def test_the_next_block_is_fetched_before_it_is_needed() -> None:
    controller = Controller()
    ids = ProducerIds(controller.allocate)
    for _ in range(9):
        await ids.next_id()
    await asyncio.sleep(0)

    assert controller.given == 2
    controller.open.clear()
    assert [await ids.next_id() for _ in range(3)] == [9, 1000, 1001]


async def test_many_at_once_get_different_ids() -> None:
    ids = ProducerIds(Controller().allocate)

    given = await asyncio.gather(*(ids.next_id() for _ in range(8)))

    assert sorted(i for i in given if i is not None) == list(range(8))
