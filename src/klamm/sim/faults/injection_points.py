"""Steps of the cluster at which faults can be injected: writes to and reads of ZooKeeper, and requests.

An injection gets a step just before it happens, when everything around it can still be changed.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from klamm.sim.zookeeper.ensemble import InjectedFailure
from klamm.zk.znodes import BROKER_IDS, CONTROLLER, CONTROLLER_EPOCH


class StepKind(StrEnum):
    """Kinds of steps at which a fault can be injected."""

    WRITE = "write"
    READ = "read"  # of a znode or of several, with its watch; not a ping
    CONTROL_REQUEST = "control request"
    BROKER_REQUEST = "broker request"  # from a broker to the controller


class Step(NamedTuple):
    """One ZooKeeper write or read, or a request, just before it happens."""

    kind: StepKind
    actor: int
    """The node that writes, reads or sends the request; 0 if it is not a node."""
    target: int
    """The node that gets the request; 0 for a write or a read."""
    what: str
    """The paths written or read, or the name of the request."""

    @property
    def becomes_controller(self) -> bool:
        """Whether this write makes its node the controller; a write that only checks the controller epoch does not."""
        return (
            self.kind is StepKind.WRITE and self.actor > 0 and self.what.split()[-2:] == [CONTROLLER, CONTROLLER_EPOCH]
        )

    @property
    def registers(self) -> bool:
        """Whether this write registers a broker: its last path is the broker's znode."""
        return self.kind is StepKind.WRITE and self.actor > 0 and self.what.split()[-1].startswith(BROKER_IDS)


Injection = Callable[[Step], InjectedFailure | None]
"""Lets the step pass (None), or breaks the connection before or after it is taken."""


class InjectionPoints:
    """The injections that wait for a step of the cluster; the first one that returns a loss decides."""

    def __init__(self) -> None:
        self._set: list[Injection] = []
        self.watch: Callable[[Step], None] = lambda step: None
        """Told of each step of a node, from the moment that a trap is set."""

    @property
    def any_set(self) -> bool:
        """Whether any injection waits for a step."""
        return bool(self._set)

    def set(self, injection: Injection) -> None:
        """Add an injection that gets each further step."""
        self._set.append(injection)

    def remove(self, injection: Injection) -> None:
        """Remove the injection; it fires no more."""
        self._set.remove(injection)

    def clear(self) -> None:
        """Remove all injections."""
        self._set.clear()

    def step(self, step: Step) -> InjectedFailure | None:
        """Offer a step to the injections.

        Returns what the first matching one does to the connection; None where none matches.
        """
        if self._set and step.actor:
            self.watch(step)
        for injection in list(self._set):
            if (loss := injection(step)) is not None:
                return loss
        return None
