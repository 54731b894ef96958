"""Nodes that run controllers over one ZooKeeper in memory, and a mirror without pauses."""

from collections.abc import AsyncIterator

import pytest
from tests.support.controller_nodes import Nodes

from klamm.controller import mirror as mirrors


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    made = Nodes()
    yield made
    await made.close()


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrors, "PAUSE_S", 0)
    monkeypatch.setattr(mirrors, "FOLLOW_INTERVAL_S", 0)
