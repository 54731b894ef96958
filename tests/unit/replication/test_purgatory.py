import asyncio
from collections.abc import Iterable

from klamm.replication.purgatory import Purgatory
from klamm.sim.loop import SimulatedLoop


def test_a_delayed_operation_that_is_already_complete_does_not_wait_in_the_purgatory() -> None:
    async def main() -> None:
        assert await Purgatory[str]().wait(["a"], lambda keys: True, 1) is True

    SimulatedLoop().run(main())


def test_checking_a_purgatory_key_completes_its_delayed_operation_when_the_condition_holds() -> None:
    async def main() -> None:
        purgatory: Purgatory[str] = Purgatory()
        done = False
        waiting = asyncio.create_task(purgatory.wait(["a", "b"], lambda keys: done, 10))
        await asyncio.sleep(1)
        assert purgatory.check("b") == 0
        done = True
        assert purgatory.check("c") == 0
        assert purgatory.check("b") == 1
        assert purgatory.check("a") == 0  # once
        assert await waiting is True
        assert (len(purgatory), list(purgatory.keys)) == (0, [])
        assert asyncio.get_running_loop().time() == 1

    SimulatedLoop().run(main())


def test_checking_a_purgatory_under_all_keys_completes_what_is_done_under_any_of_them() -> None:
    async def main() -> None:
        purgatory: Purgatory[str] = Purgatory()
        changed = {"b", "d"}
        waiting = [
            asyncio.create_task(purgatory.wait(keys, lambda keys: not changed.isdisjoint(keys), 10))
            for keys in ("ac", "ae", "ec")
        ]
        await asyncio.sleep(1)
        changed.add("e")
        purgatory.check_all()
        assert [await task for task in waiting] == [False, True, True]
        assert asyncio.get_running_loop().time() == 10

    SimulatedLoop().run(main())


def test_a_delayed_operation_not_complete_in_time_returns_false_after_the_timeout() -> None:
    async def main() -> None:
        purgatory: Purgatory[str] = Purgatory()
        assert await purgatory.wait(["a"], lambda keys: False, 3) is False
        assert asyncio.get_running_loop().time() == 3
        assert len(purgatory) == 0
        assert await purgatory.wait(["a"], lambda keys: False, 0) is False

    SimulatedLoop().run(main())


def test_a_delayed_operation_above_the_purgatory_limit_times_out_at_once() -> None:
    async def main() -> None:
        purgatory: Purgatory[str] = Purgatory(limit=1)
        first = asyncio.create_task(purgatory.wait(["a"], lambda keys: False, 10))
        await asyncio.sleep(0)
        assert await purgatory.wait(["a"], lambda keys: False, 10) is False
        assert asyncio.get_running_loop().time() == 0
        assert await first is False

    SimulatedLoop().run(main())


def test_a_cancelled_delayed_operation_is_removed_from_the_purgatory() -> None:
    async def main() -> None:
        purgatory: Purgatory[str] = Purgatory()
        waiting = asyncio.create_task(purgatory.wait(["a"], lambda keys: False, 10))
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (len(purgatory), list(purgatory.keys)) == (0, [])

    SimulatedLoop().run(main())


def test_two_delayed_operations_with_the_same_purgatory_key_complete_independently() -> None:
    async def main() -> None:
        purgatory: Purgatory[str] = Purgatory()
        reached = 0
        low = asyncio.create_task(purgatory.wait(["a"], lambda keys: reached >= 1, 10))
        high = asyncio.create_task(purgatory.wait(["a"], lambda keys: reached >= 2, 10))
        await asyncio.sleep(0)
        reached = 1
        assert purgatory.check("a") == 1
        assert await low is True
        assert not high.done()
        assert await high is False

    SimulatedLoop().run(main())


def test_the_purgatory_checks_only_the_requests_of_the_given_key() -> None:
    async def main() -> None:
        purgatory: Purgatory[int] = Purgatory()
        left = set(range(5_000))
        looked_at: list[int] = []

        def is_done(changed: Iterable[int]) -> bool:
            looked_at.extend(changed)
            return not left

        waiting = asyncio.create_task(purgatory.wait(range(5_000), is_done, 10))
        await asyncio.sleep(1)  # it is registered in time slices
        looked_at.clear()
        for key in range(5_000):
            left.discard(key)
            purgatory.check(key)

        assert await waiting is True
        assert looked_at == list(range(5_000))

    SimulatedLoop().run(main())


def test_a_change_while_a_delayed_operation_is_registered_under_many_keys_is_not_missed() -> None:
    async def main() -> None:
        keys = [str(number) for number in range(1_000)]
        left = dict.fromkeys(keys)
        changed: set[str] = set()

        def is_done(named: Iterable[str]) -> bool:
            for key in changed.intersection(named):
                left.pop(key, None)
            return not left

        purgatory: Purgatory[str] = Purgatory()
        waiting = asyncio.create_task(purgatory.wait(keys, is_done, 10))
        held_at_once = 0
        for start in range(0, len(keys), 20):
            before = len(list(purgatory.keys))
            await asyncio.sleep(0)
            held_at_once = max(held_at_once, len(list(purgatory.keys)) - before)
            for key in keys[start : start + 20]:
                changed.add(key)
                purgatory.check(key)
        assert await waiting is True
        assert asyncio.get_running_loop().time() == 0
        assert 0 < held_at_once < len(keys) // 2
        assert (len(purgatory), list(purgatory.keys)) == (0, [])

    SimulatedLoop().run(main())
