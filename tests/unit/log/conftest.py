"""A world with the real disk and a clock that stands still until it is moved."""

from pathlib import Path

import pytest
from tests.unit.log.managed_node import Node
from tests.unit.log.support import ManualClock, Partition

from klamm.runtime.disk import RealDisk
from klamm.runtime.network import RealNetwork
from klamm.runtime.randomness import RealRandomness
from klamm.runtime.world import World


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world(clock: ManualClock) -> World:
    return World(clock, RealNetwork(), RealDisk(), RealRandomness())


@pytest.fixture
def orders(world: World, tmp_path: Path) -> Partition:
    """The directory of `orders-0`, opened and reopened by the test."""
    return Partition(world, f"{tmp_path}/orders-0")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)
