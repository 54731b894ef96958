"""The options of a run, which a seed draws before the run begins."""

from dataclasses import dataclass
from typing import Final

from klamm.runtime.randomness import Rng
from klamm.sim.faults.table import ADDED_FAULTS, FIRST_FAULTS
from klamm.sim.schedules import Policy
from klamm.sim.workload.verbs import VERBS

_USUALLY: Final = 0.9
_JOURNALS_SHARE: Final = 0.25
_ADDED_FAULTS_SHARE: Final = 0.8
_SMALL_LIMITS_SHARE: Final = 0.3


@dataclass(frozen=True, slots=True)
class Options:
    """Cluster size, settings, faults and verbs of a run."""

    seed: int
    policy: Policy = Policy.FIFO
    nodes: int = 3
    servers: int = 1
    session_timeout_ms: int = 3_000
    protocol: str = "3.9-IV0"
    """inter.broker.protocol.version: which control requests there are."""
    partitions: int = 4
    """Of one new topic, at most."""
    replication: int = 3
    """Replicas of a new partition, at most."""
    in_flight: int = 256
    """Requests to ZooKeeper without an answer, at most: one makes every batch a queue."""
    request_timeout_ms: int = 30_000
    """How long the controller waits for an answer. As in production: an UpdateMetadata that is repeated while the first
    is still on its way may overtake newer ones, and the protocol has no guard against that."""
    resend_pause_ms: int = 100
    imbalance_check_s: int = 10
    token_check_s: int = 0
    """How often delegation tokens are checked; 0: there are none."""
    rebalances: bool = True
    """auto.leader.rebalance.enable."""
    deletes_topics: bool = True
    """delete.topic.enable."""
    supports_features: bool = False
    """Nodes support a feature, which operators may finalize."""
    keeps_mirrors: bool = False
    """Nodes that are not controller keep a mirror of topics and partitions for their election."""
    mirror_read_pause_s: float = 0.0
    """How long ZooKeeper waits before each bulk read of a mirror, so that more changes during its reads."""
    reads_journals: bool = False
    """The journals of controllers are compared with what they did."""
    has_small_limits: bool = False
    """A few partitions are many for a controller: it sends topics as a whole, and merges requests that wait."""
    pause_s: float = 1.0
    """Mean time between two actions."""
    work: float = 1.0
    """Which part of them is work; the rest are faults."""
    heals_core: bool = False
    """Before all is healed, a part of the nodes and a majority of ZooKeeper are, and have to do without the rest."""
    faults: tuple[str, ...] = ()
    added_faults: tuple[str, ...] = ()
    """Faults that came later: they happen at times of their own, so that older ones stay where they were."""
    verbs: tuple[str, ...] = ()

    @classmethod
    def of(cls, seed: int) -> "Options":
        """Draw the options of a run from its seed."""
        rng = Rng(f"{seed}/options")
        faults = tuple(name for name in FIRST_FAULTS if rng.random() < 0.5)
        settings = Rng(f"{seed}/settings")
        return cls(
            seed,
            policy=rng.choice((Policy.FIFO, Policy.HOSTS, Policy.HOSTS, Policy.PRIORITIES)),
            nodes=rng.choice((1, 2, 3, 3, 3, 3, 4, 5, 6, 7)),
            servers=rng.choice((1, 1, 1, 2, 3, 3, 5)),
            session_timeout_ms=rng.choice((1_500, 3_000, 3_000, 6_000, 9_000)),
            protocol=rng.choice(("3.9-IV0", "3.9-IV0", "3.9-IV0", "3.3-IV0", "3.0-IV1", "2.8-IV1", "2.6-IV0")),
            partitions=rng.choice((1, 4, 4, 8)),
            replication=rng.choice((1, 3, 3, 3, 5)),
            in_flight=rng.choice((1, 2, 10, 256, 256)),
            request_timeout_ms=rng.choice((30_000, 40_000)),
            resend_pause_ms=rng.choice((20, 100, 100)),
            imbalance_check_s=rng.choice((2, 10, 10, 60)),
            token_check_s=settings.choice((0, 0, 2, 10)),
            rebalances=settings.random() < _USUALLY,
            deletes_topics=settings.random() < _USUALLY,
            supports_features=settings.random() < 0.5,
            keeps_mirrors=Rng(f"{seed}/mirrors").random() < 0.5,
            mirror_read_pause_s=Rng(f"{seed}/mirror reads").choice((0.0, 0.5)),
            reads_journals=Rng(f"{seed}/journals").random() < _JOURNALS_SHARE,
            has_small_limits=Rng(f"{seed}/small limits").random() < _SMALL_LIMITS_SHARE,
            pause_s=rng.choice((0.5, 1.0, 1.0, 3.0, 3.0, 8.0)),
            work=rng.choice((0.3, 0.3, 0.6)),
            heals_core=rng.random() < 0.5,
            faults=faults or ("kill",),
            added_faults=_draw_added_faults(Rng(f"{seed}/added faults")),
            verbs=tuple(name for name in VERBS if name == "create topic" or rng.random() < 0.5),
        )

    @classmethod
    def plain(cls, seed: int = 0, nodes: int = 3) -> "Options":
        """A small cluster in asyncio's callback order, without random faults: for hand-written scripts."""
        return cls(seed, nodes=nodes)


def _draw_added_faults(rng: Rng) -> tuple[str, ...]:
    """Draw which of the faults happen that came later; in some schedules none."""
    is_without = rng.random() >= _ADDED_FAULTS_SHARE
    return () if is_without else tuple(name for name in ADDED_FAULTS if rng.random() < _USUALLY)
