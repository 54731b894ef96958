"""What a node does when its start fails."""

from types import SimpleNamespace
from typing import Any

import pytest

from klamm.broker import node
from klamm.broker.lifecycle import BrokerState, CannotStart, Lifecycle, NodeStatus, Step
from klamm.broker.node import start_node
from klamm.model.errors import KlammError
from klamm.telemetry.logs import LogLevels
from klamm.zk.errors import SessionExpired


class Starts:
    """The starts of a node, each with a part that can be closed; `errors` are how the first ones end."""

    def __init__(self, patch: pytest.MonkeyPatch, *errors: KlammError) -> None:
        self.made = 0
        self.closed: list[int] = []
        self._errors = list(errors)
        patch.setattr(node, "assemble", self.assemble)

    async def assemble(self, _world: Any, _config: Any, _levels: Any, status: NodeStatus, lifecycle: Lifecycle) -> Any:
        self.made += 1
        number = self.made
        lifecycle.add("part", Step(close=lambda: self.closed.append(number)))
        await lifecycle.start()
        if self._errors:
            raise self._errors.pop(0)
        return SimpleNamespace(context=SimpleNamespace(status=status, broker_id=1, cluster_id="c"))

    async def start(self) -> node.Node:
        world: Any = None
        config: Any = None
        return await start_node(world, config, LogLevels())


async def test_a_node_whose_zookeeper_session_expires_while_it_starts_starts_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts = Starts(monkeypatch, SessionExpired("/brokers/ids"), SessionExpired("/controller"))

    started = await starts.start()

    assert (starts.made, starts.closed) == (3, [1, 2])
    assert started.parts.context.status.state is BrokerState.RUNNING


async def test_a_node_that_cannot_run_as_configured_closes_its_parts_and_does_not_start_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts = Starts(monkeypatch, CannotStart("no"))

    with pytest.raises(CannotStart, match="no"):
        await starts.start()

    assert (starts.made, starts.closed) == (1, [1])
