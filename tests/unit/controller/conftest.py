"""Nodes that run controllers over one ZooKeeper in memory."""

from collections.abc import AsyncIterator

import pytest
from tests.support.controller_nodes import Nodes


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    made = Nodes()
    yield made
    await made.close()
