"""Long work gives the loop back after a slice of time, and whatever else is ready runs between two slices."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from weakref import WeakSet

import pytest

from klamm.runtime.memory import FULL_FREEZE_SLICES, IN_A_ROW_S, LONG_WORK_SLICES, YOUNG_OBJECTS, LongWork
from klamm.runtime.time_slices import PIECE, SLICE_S, CountedSlices, TimeSlices
from klamm.sim.loop import SimulatedLoop


def on_a_loop_whose_time_passes(main: Callable[[Callable[[float], None]], Awaitable[None]]) -> None:
    """`main` gets a function that lets time pass while a callback computes."""
    loop = SimulatedLoop()

    def compute(seconds: float) -> None:
        loop.now += seconds

    async def run() -> None:
        await main(compute)

    loop.run(run())


def test_long_running_tasks_take_turns_within_one_time_slice_per_loop_iteration() -> None:
    passes: list[str] = [""]

    async def main(compute: Callable[[float], None]) -> None:
        slices = TimeSlices()

        async def worker(name: str) -> None:
            for _ in range(6):
                await slices.checkpoint()
                passes[-1] += name
                compute(SLICE_S * 0.6)

        async def others() -> None:
            for _ in range(60):
                passes.append("")
                await asyncio.sleep(0)

        await asyncio.gather(worker("a"), worker("b"), others())

    on_a_loop_whose_time_passes(main)
    assert "".join(passes).count("a") == "".join(passes).count("b") == 6
    assert max(map(len, passes)) == 2  # what began within the slice
    assert "|".join(filter(None, passes)) == "aa|aa|bb|aa|bb|bb"


def test_work_shorter_than_a_time_slice_does_not_yield_to_the_event_loop() -> None:
    passed: list[bool] = []

    async def main(compute: Callable[[float], None]) -> None:
        slices = TimeSlices()
        asyncio.get_running_loop().call_soon(passed.append, True)
        async for _ in slices.over(range(3 * PIECE)):
            compute(SLICE_S / 4)
        assert not passed
        await slices.checkpoint()
        compute(2 * SLICE_S)
        await slices.checkpoint()
        assert passed

    on_a_loop_whose_time_passes(main)


def test_time_spent_waiting_does_not_count_against_a_time_slice() -> None:
    passed: list[bool] = []

    async def main(compute: Callable[[float], None]) -> None:
        slices = TimeSlices()
        await slices.checkpoint()
        await asyncio.sleep(1)  # as for an answer of ZooKeeper
        asyncio.get_running_loop().call_soon(passed.append, True)
        await slices.checkpoint()
        compute(SLICE_S * 0.6)
        await slices.checkpoint()
        assert not passed

    on_a_loop_whose_time_passes(main)


def test_a_task_cancelled_while_waiting_for_a_time_slice_does_not_block_other_tasks() -> None:
    seen: list[int] = []

    async def main(compute: Callable[[float], None]) -> None:
        slices = TimeSlices()

        async def worker(number: int) -> None:
            await slices.checkpoint()
            compute(2 * SLICE_S)
            await slices.checkpoint()
            seen.append(number)

        tasks = [asyncio.get_running_loop().create_task(worker(n)) for n in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    on_a_loop_whose_time_passes(main)
    assert seen == [1, 2]


async def test_cutting_items_into_pieces_keeps_their_order_and_the_given_piece_size() -> None:
    slices = TimeSlices()
    assert [piece async for piece in slices.over(range(5), 3)] == [[0, 1, 2], [3, 4]]
    assert [n async for n in slices.each(range(2 * PIECE + 1))] == list(range(2 * PIECE + 1))
    contents = dict.fromkeys(range(2 * PIECE + 1))
    await slices.clear(contents)
    assert not contents


@pytest.mark.parametrize("count", [0, 1, PIECE, 3 * PIECE + 1])
async def test_lists_and_dicts_made_in_time_slices_have_every_item_in_order(count: int) -> None:
    slices, seen = CountedSlices(PIECE // 2), list[int]()

    assert await slices.list_of(n for n in range(count)) == list(range(count))
    assert list(await slices.dict_of((n, -n) for n in range(count))) == list(range(count))
    await slices.run(map(seen.append, range(count)))
    assert seen == list(range(count))


async def test_work_in_steps_gives_other_callbacks_their_turn_after_each_piece() -> None:
    slices, seen, others = CountedSlices(PIECE // 2), list[int](), list[int]()
    loop = asyncio.get_running_loop()

    def note() -> None:
        others.append(len(seen))
        if len(seen) < 4 * PIECE:
            loop.call_soon(note)

    loop.call_soon(note)
    await slices.run(map(seen.append, range(4 * PIECE)))

    assert others[:3] == [PIECE, 2 * PIECE, 3 * PIECE]


async def test_few_steps_run_at_once_and_leave_nothing_to_await() -> None:
    slices, seen = CountedSlices(), list[int]()

    assert slices.begin(map(seen.append, range(PIECE - 1))) is None
    assert len(seen) == PIECE - 1


async def test_time_slices_counted_by_items_end_after_a_number_of_items() -> None:
    slices, passed = CountedSlices(10), list[int]()
    loop = asyncio.get_running_loop()

    async def gives_back(items: int) -> bool:
        before = len(passed)
        loop.call_soon(passed.append, items)
        await slices.checkpoint(items)
        return len(passed) > before

    assert [await gives_back(items) for items in (4, 6, 1, 9, 1)] == [False, False, True, False, True]


async def test_the_item_count_of_a_time_slice_restarts_in_each_event_loop_iteration() -> None:
    slices, passed = CountedSlices(10), list[str]()
    for _ in range(3):
        await slices.checkpoint(6)
        await asyncio.sleep(0)

    asyncio.get_running_loop().call_soon(passed.append, "another callback")
    await slices.checkpoint(6)
    assert not passed, "work on few items gave the loop back"


# ---- what the garbage collector is told of long work


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As patient as a node's; what it was told to pass over it looks at again afterwards.

    Long work of earlier tests in this process, by another clock, does not count.
    """
    monkeypatch.setattr(LongWork, "_excluding", WeakSet())
    before = gc.get_threshold()
    gc.set_threshold(10 * YOUNG_OBJECTS)
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("collector")
async def test_objects_created_by_long_work_are_hidden_from_garbage_collection_until_its_end() -> None:
    work, kept = LongWork(lambda: 0.0), list[list[int]]()
    gc.collect()
    frozen = gc.get_freeze_count()

    kept += [[n] for n in range(2 * YOUNG_OBJECTS)]
    for _ in range(LONG_WORK_SLICES):
        work.on_slice_end()
    assert gc.get_freeze_count() == frozen  # nothing long so far: what dies in a cycle would stay

    work.on_slice_end()
    assert gc.get_freeze_count() >= frozen + len(kept)
    frozen = gc.get_freeze_count()
    work.on_slice_end()
    assert gc.get_freeze_count() <= frozen  # little was made

    work.on_work_end()
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("collector")
async def test_objects_that_long_work_replaces_are_hidden_from_garbage_collection() -> None:
    work, kept = LongWork(lambda: 0.0), [[n] for n in range(2 * YOUNG_OBJECTS)]
    for _ in range(LONG_WORK_SLICES):
        work.on_slice_end()
    gc.collect()
    gc.freeze()

    for n in range(len(kept)):
        kept[n] = [n]  # for each new one an old one goes: the collector counts none
    assert gc.get_count()[0] < YOUNG_OBJECTS
    for _ in range(FULL_FREEZE_SLICES):
        work.on_slice_end()

    assert len(gc.get_objects(generation=0)) < YOUNG_OBJECTS


@pytest.mark.usefixtures("collector")
def test_the_end_of_other_work_leaves_objects_of_long_work_hidden_from_garbage_collection() -> None:
    now = 0.0
    work, long_too, short = (LongWork(lambda: now) for _ in range(3))
    for _ in range(LONG_WORK_SLICES + FULL_FREEZE_SLICES):
        work.on_slice_end()
        long_too.on_slice_end()
    short.on_slice_end()
    assert gc.get_freeze_count()

    now = 10 * IN_A_ROW_S
    short.on_work_end()
    assert gc.get_freeze_count(), "work that hid nothing shows nothing"
    now = 0.0
    for other in (short, long_too, long_too):
        other.on_work_end()
        assert gc.get_freeze_count()

    for _ in range(LONG_WORK_SLICES + FULL_FREEZE_SLICES):
        long_too.on_slice_end()
    now = 10 * IN_A_ROW_S  # the first work waits for something else
    long_too.on_work_end()
    assert not gc.get_freeze_count()


def test_the_time_slice_observer_is_called_after_each_slice_and_at_the_end() -> None:
    told: list[str] = []

    class Observer:
        def on_slice_end(self) -> None:
            told.append("slice")

        def on_work_end(self) -> None:
            told.append("work")

    async def main(compute: Callable[[float], None]) -> None:
        slices = TimeSlices(Observer())
        for _ in range(3):
            await slices.checkpoint()
            compute(2 * SLICE_S)
        slices.close()

    on_a_loop_whose_time_passes(main)
    assert told == ["slice", "slice", "work"]
