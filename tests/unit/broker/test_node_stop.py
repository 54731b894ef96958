"""What a node does between a stop signal and the end of its connections."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.broker import node
from klamm.broker.controlled_shutdown import ControlledShutdown
from klamm.broker.lifecycle import Lifecycle, NodeStatus
from klamm.broker.node import Node
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId


@dataclass
class Replica:
    """A hosted partition."""

    is_leader: bool
    brokers: tuple[int, ...] = (1, 2)

    @property
    def assignment(self) -> ReplicaAssignment:
        return ReplicaAssignment(tuple(map(BrokerId, self.brokers)))


@dataclass
class Replicas:
    """The replicas of a node that stops."""

    hosted: list[Replica]
    is_leaving: bool = False

    def partitions(self) -> list[Replica]:
        return self.hosted

    def begin_shutdown(self) -> None:
        self.is_leaving = True


@dataclass
class Scene:
    """A node that stops, and for which partitions it lets clients move before it closes its connections."""

    moves_leaders: bool
    replicas: Replicas
    moved: list[Any] = field(default_factory=list)

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        async def run(_: object) -> bool:
            assert self.replicas.is_leaving
            return self.moves_leaders

        async def let_clients_move(led: list[Any]) -> None:
            self.moved.append(led)

        patch.setattr(ControlledShutdown, "run", run)
        patch.setattr(node, "let_clients_move", let_clients_move)

    async def stop(self) -> None:
        config = SimpleNamespace(controlled_shutdown_enable=True)
        context = SimpleNamespace(world=None, config=config, broker_id=1, sessions=None, status=NodeStatus())
        parts: Any = SimpleNamespace(context=context, replicas=self.replicas)
        await Node(parts, Lifecycle()).stop()


async def test_clients_of_the_partitions_that_a_stopping_node_led_are_served_until_they_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    led, followed, alone = Replica(is_leader=True), Replica(is_leader=False), Replica(is_leader=True, brokers=(1,))
    scene = Scene(moves_leaders=True, replicas=Replicas([led, followed, alone]))
    scene.patch(monkeypatch)

    await scene.stop()

    assert scene.moved == [[led]]


async def test_a_stopping_node_whose_leaders_did_not_move_does_not_wait_for_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(moves_leaders=False, replicas=Replicas([Replica(is_leader=True)]))
    scene.patch(monkeypatch)

    await scene.stop()

    assert scene.moved == []
