"""The simulated loop: virtual time, seeded order, killed, paused and slow hosts, digests."""

import asyncio
import gc
import os
import subprocess
import sys
from typing import Any

import pytest

from klamm.sim.loop import Deadlock, OutOfTime, SimulatedLoop
from klamm.sim.schedules import Policy


def test_virtual_time_of_the_simulated_event_loop_jumps_to_the_next_timer() -> None:
    async def main() -> float:
        await asyncio.sleep(3_600)
        return asyncio.get_running_loop().time()

    assert SimulatedLoop().run(main()) == 3_600


async def three_hosts_shout(loop: SimulatedLoop) -> list[str]:
    """Run three hosts that each append their name several times; the order of names."""
    heard: list[str] = []

    async def shout(name: str) -> None:
        for turn in range(3):
            heard.append(f"{name}{turn}")
            await asyncio.sleep(0)

    await asyncio.gather(*(loop.spawn(loop.add_host(n), shout(n)) for n in "abc"))
    return heard


def heard(seed: int, policy: Policy) -> tuple[list[str], str]:
    """The order of names and the digest of a run."""
    loop = SimulatedLoop(seed, policy)
    return loop.run(three_hosts_shout(loop)), loop.digest


@pytest.mark.parametrize("policy", Policy)
def test_the_same_simulation_seed_gives_the_same_order_of_callbacks(policy: Policy) -> None:
    assert heard(7, policy) == heard(7, policy)


@pytest.mark.parametrize("policy", [Policy.HOSTS, Policy.PRIORITIES, Policy.SHUFFLED])
def test_different_simulation_seeds_give_different_callback_orders(policy: Policy) -> None:
    assert len({tuple(heard(seed, policy)[0]) for seed in range(20)}) > 3
    assert len({heard(seed, policy)[1] for seed in range(20)}) > 3


@pytest.mark.parametrize("policy", [Policy.FIFO, Policy.HOSTS, Policy.PRIORITIES])
def test_callbacks_of_a_simulated_host_run_in_asyncios_order(policy: Policy) -> None:
    async def main() -> list[int]:
        order: list[int] = []
        for number in range(50):
            asyncio.get_running_loop().call_soon(order.append, number)
        await asyncio.sleep(1)
        return order

    assert SimulatedLoop(3, policy).run(main()) == list(range(50))


def test_the_deadlock_error_of_the_simulated_loop_names_waiting_tasks_and_lines() -> None:
    loop = SimulatedLoop()

    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await loop.spawn(loop.add_host("broker-1"), waits_for_ever(), "waiter")

    with pytest.raises(Deadlock, match=r"broker-1\.1/waiter#1 at .*locks\.py:\d+ wait"):
        loop.run(main())


def test_a_simulated_run_beyond_its_time_limit_raises_out_of_time() -> None:
    async def main() -> None:
        for _ in range(1_000):
            await asyncio.sleep(1)

    with pytest.raises(OutOfTime, match="10 s of simulated time"):
        SimulatedLoop().run(main(), limit_s=10)
    with pytest.raises(OutOfTime, match="100 callbacks"):
        SimulatedLoop().run(main(), max_steps=100)


async def tick(heard: list[float]) -> None:
    """Append the time every second, and -1 at the end."""
    try:
        while True:
            await asyncio.sleep(1)
            heard.append(asyncio.get_running_loop().time())
    finally:
        heard.append(-1)


def test_a_killed_simulated_host_runs_no_callback_and_no_finally_block() -> None:
    loop = SimulatedLoop()
    ticks: list[float] = []

    async def main() -> None:
        host = loop.add_host("a")
        loop.spawn(host, tick(ticks))
        await asyncio.sleep(3.5)
        loop.kill(host)
        await asyncio.sleep(3)
        assert ticks == [1, 2, 3]
        assert loop.add_host("a").incarnation == 2

    loop.run(main())
    assert loop.errors == []


def test_a_paused_simulated_host_runs_its_due_callbacks_after_resume() -> None:
    loop = SimulatedLoop()
    ticks: list[float] = []

    async def main() -> None:
        host = loop.add_host("a")
        loop.spawn(host, tick(ticks))
        await asyncio.sleep(1.5)
        loop.pause(host)
        await asyncio.sleep(10)
        assert ticks == [1]
        loop.resume(host)
        await asyncio.sleep(2)
        assert ticks == [1, 11.5, 12.5, 13.5][: len(ticks)]
        assert len(ticks) >= 3

    loop.run(main())


def test_each_callback_of_a_slow_simulated_host_takes_virtual_time() -> None:
    loop = SimulatedLoop()
    ticks: list[float] = []

    async def main() -> None:
        host = loop.add_host("a")
        loop.slow(host, 0.25)
        loop.spawn(host, tick(ticks))
        await asyncio.sleep(10)
        assert 5 <= len(ticks) <= 7

    loop.run(main())


def test_an_exception_in_a_callback_ends_the_simulated_run_with_an_error() -> None:
    def fail() -> None:
        raise ValueError("planted")

    async def main() -> None:
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(1)

    with pytest.raises(AssertionError, match="planted"):
        SimulatedLoop().run(main())


SHOW_DIGESTS = """
import sys
from tests.unit.sim.test_loop import heard
from klamm.sim.schedules import Policy
print([heard(seed, policy)[1] for seed in range(5) for policy in Policy])
"""


def digests(hash_seed: str) -> str:
    environment: dict[str, Any] = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [sys.executable, "-c", SHOW_DIGESTS], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_a_simulated_run_is_identical_across_processes_and_python_hash_seeds() -> None:
    assert digests("1") == digests("2") == f"{[heard(s, p)[1] for s in range(5) for p in Policy]}\n"


def test_tasks_that_begin_while_those_of_a_killed_host_are_discarded_are_discarded_too(
    recwarn: pytest.WarningsRecorder,
) -> None:
    loop = SimulatedLoop()
    begun: list[asyncio.Task[None]] = []

    async def late() -> None: ...

    async def worker() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            begun.append(asyncio.get_running_loop().create_task(late()))

    async def main() -> None:
        host = loop.add_host("a")
        loop.spawn(host, worker())
        await asyncio.sleep(1)
        loop.kill(host)

    loop.run(main())
    assert len(begun) == 1
    begun.clear()
    gc.collect()

    assert [str(w.message) for w in recwarn] == []
