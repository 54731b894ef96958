"""How wide a run is: what a seed draws before anything happens."""

from dataclasses import dataclass

from klamm.runtime.randomness import Dice
from klamm.sim.faults.table import FAULTS
from klamm.sim.schedules import Policy
from klamm.sim.workload import VERBS


@dataclass(frozen=True, slots=True)
class Options:
    seed: int
    policy: Policy
    nodes: int
    servers: int
    session_timeout_ms: int
    pause_s: float
    """Mean time between two happenings."""
    work: float
    """Which part of them is work; the rest are faults."""
    faults: tuple[str, ...]
    verbs: tuple[str, ...]

    @classmethod
    def of(cls, seed: int) -> "Options":
        dice = Dice(f"{seed}/options")
        faults = tuple(name for name in FAULTS if dice.random() < 0.5)
        return cls(
            seed,
            policy=dice.choice((Policy.FIFO, Policy.HOSTS, Policy.HOSTS, Policy.PRIORITIES)),
            nodes=dice.choice((3, 3, 3, 4, 5)),
            servers=dice.choice((1, 1, 3)),
            session_timeout_ms=dice.choice((3_000, 6_000)),
            pause_s=dice.choice((1.0, 3.0, 8.0)),
            work=dice.choice((0.3, 0.3, 0.6)),
            faults=faults or ("kill",),
            verbs=tuple(name for name in VERBS if name == "create topic" or dice.random() < 0.5),
        )

    @classmethod
    def plain(cls, seed: int = 0, nodes: int = 3) -> "Options":
        """Small, and in the order of asyncio: for scripts written by hand."""
        return cls(
            seed,
            policy=Policy.FIFO,
            nodes=nodes,
            servers=1,
            session_timeout_ms=3_000,
            pause_s=1.0,
            work=1.0,
            faults=(),
            verbs=(),
        )
