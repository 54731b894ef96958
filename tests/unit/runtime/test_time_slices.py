"""Long work goes one piece at a time, and whatever else is ready runs between two pieces."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from klamm.runtime.memory import YOUNG
from klamm.runtime.time_slices import LARGE, LIGHT, REPLACED, TimeSlices


async def test_one_turn_in_each_pass_of_the_loop_first_come_first_served() -> None:
    slices, seen = TimeSlices(), list[str]()

    async def worker(name: str) -> None:
        for _ in range(2):
            await slices.take()
            seen.append(name)

    async def passes() -> None:
        for _ in range(8):
            seen.append("|")
            await asyncio.sleep(0)

    await asyncio.gather(worker("a"), worker("b"), worker("c"), passes())

    assert "".join(seen).strip("|").replace("||", "|") == "a|b|c|a|b|c"


async def test_whoever_gave_up_waiting_is_passed_over() -> None:
    slices, seen = TimeSlices(), list[int]()

    async def worker(number: int) -> None:
        await slices.take()
        seen.append(number)

    tasks = [asyncio.create_task(worker(n)) for n in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert seen == [1, 2]


async def test_little_work_needs_no_turn() -> None:
    slices = TimeSlices()
    loop, passed = asyncio.get_running_loop(), list[bool]()
    loop.call_soon(passed.append, True)

    await slices.take_for(LIGHT)
    assert [chunk async for chunk in slices.over(range(5), 3)] == [[0, 1, 2], [3, 4]]
    assert not passed

    await slices.take_for(LIGHT + 1)
    assert passed


@pytest.fixture
def collector() -> Iterator[None]:
    """As patient as a node's; what it was told to pass over it looks at again afterwards."""
    before = gc.get_threshold()
    gc.set_threshold(10 * YOUNG)
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("collector")
async def test_what_large_work_made_is_passed_over_by_the_garbage_collector() -> None:
    slices, kept = TimeSlices(), list[list[int]]()
    gc.collect()
    frozen = gc.get_freeze_count()

    kept += [[n] for n in range(2 * YOUNG)]
    for _ in range(LARGE):
        await slices.take()
    assert gc.get_freeze_count() == frozen  # nothing large so far: what dies in a cycle would stay

    await slices.take()
    assert gc.get_freeze_count() >= frozen + len(kept)
    frozen = gc.get_freeze_count()
    await slices.take()
    assert gc.get_freeze_count() <= frozen  # little was made


@pytest.mark.usefixtures("collector")
async def test_what_large_work_replaced_is_passed_over_too() -> None:
    slices, kept = TimeSlices(), [[n] for n in range(2 * YOUNG)]
    for _ in range(LARGE):
        await slices.take()
    gc.collect()
    gc.freeze()

    for n in range(len(kept)):
        kept[n] = [n]  # for each new one an old one goes: the collector counts none
    assert gc.get_count()[0] < YOUNG
    for _ in range(REPLACED):
        await slices.take()

    assert len(gc.get_objects(generation=0)) < YOUNG
