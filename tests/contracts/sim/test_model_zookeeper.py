"""The model ZooKeeper against a real one: generated sequences of operations, three sessions, every answer compared."""

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from tests.support import zookeeper
from tests.support.zookeeper_sequences import Comparison, sequence_of_seed, steps_as_text
from tests.support.zookeeper_wire import connect_to_model, connect_to_real_server

from klamm.embedded.zookeeper import QUICK
from klamm.sim.zookeeper.ensemble import EnsembleSettings

SETTINGS = EnsembleSettings(zookeeper.TICK_MS, QUICK.min_session_ms, QUICK.max_session_ms)


def compare(directory: Path, numbers: Sequence[int]) -> str:
    """The first difference in words, made as small as can be; empty where there is none."""

    async def look(port: int) -> str:
        comparison = Comparison(connect_to_real_server(port), connect_to_model(SETTINGS))
        for number in numbers:
            found = comparison.differ(sequence_of_seed(number))
            if found is not None:
                found = comparison.shrink(found)
                seen = f"session s{found.session} of the real one: {found.first}\nof the model: {found.second}"
                return f"sequence {number}, made shorter:\n{steps_as_text(found.steps)}\n{seen}"
        return ""

    server = zookeeper.server(directory)
    server.start()
    try:
        return asyncio.run(look(server.port))
    finally:
        server.kill()


def test_the_zookeeper_model_answers_generated_operations_like_a_real_zookeeper(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    many = int(request.config.getoption("--sequences"))
    jobs = min(os.cpu_count() or 1, 1 + many // 1_000)
    if jobs == 1:
        assert not compare(tmp_path, range(many))
        return
    shares = [(tmp_path / str(job), range(job, many, jobs)) for job in range(jobs)]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        assert not any(differences := list(pool.map(compare, *zip(*shares, strict=True)))), "\n".join(differences)
