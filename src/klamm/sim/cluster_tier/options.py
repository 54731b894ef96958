"""How wide a run of whole nodes is, and what happens when: a seed draws both before anything happens."""

from dataclasses import dataclass
from typing import Final

from klamm.runtime.randomness import Rng
from klamm.sim.cluster_tier.faults import FAULTS
from klamm.sim.cluster_tier.verbs import ADDED_OPERATIONS, FIRST_OPERATIONS
from klamm.sim.schedules import Policy
from klamm.sim.scripts.script import ScheduledAction, Script

MIN_COMPACTION_LAG_MS: Final = 8_000
COMPACTIONS: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "min lag": {"min.compaction.lag.ms": str(MIN_COMPACTION_LAG_MS)},
    "max lag": {"max.compaction.lag.ms": "3000", "min.cleanable.dirty.ratio": "1.0"},
    "and delete": {"cleanup.policy": "compact,delete"},
}
"""Configs of the compacted topic, by name."""


@dataclass(frozen=True, slots=True)
class Options:
    seed: int
    policy: Policy = Policy.FIFO
    nodes: int = 3
    servers: int = 1
    session_timeout_ms: int = 3_000
    protocol: str = "3.9-IV0"
    """inter.broker.protocol.version: below 2.7 leaders write the ISR themselves."""
    has_standby: bool = False
    """klamm.controller.standby: a broker that is not controller keeps a copy of ZooKeeper's state for its election."""
    directories: int = 1
    """Log directories of each node."""
    topics: int = 2
    partitions: int = 1
    """Of each topic."""
    lag_ms: int = 3_000
    """replica.lag.time.max.ms."""
    fetch_wait_ms: int = 500
    """replica.fetch.wait.max.ms."""
    fetch_bytes: int = 1 << 20
    """replica.fetch.max.bytes: also what a move to another log directory copies at a time."""
    fetchers: int = 1
    """num.replica.fetchers."""
    segment_bytes: int = 1 << 20
    checkpoint_ms: int = 5_000
    """How often high watermarks and recovery points go to the disk."""
    producers: int = 2
    consumers: int = 1
    """Clients that read every partition from its leader."""
    follower_readers: int = 0
    """Clients that read every partition from all of its replicas."""
    followers_read_committed: bool = False
    """Whether those clients read committed data only, where records are copied in transactions."""
    compresses: bool = False
    """Whether producers compress their batches, each with a codec of its own."""
    committers: int = 1
    """Clients that commit offsets of a group each."""
    deletes_offsets: bool = False
    """Whether these clients also delete their offset or their group."""
    reads_offsets: bool = False
    """Whether these clients also read their offset amid the faults."""
    members: int = 0
    """Members of one consumer group, which come and go."""
    static_members: bool = False
    """Whether the members are static: one that starts again takes the place that it had."""
    copiers: int = 0
    """Clients that copy records in transactions."""
    copies_to_compacted: bool = False
    """Whether they also copy to the compacted topic, where keyed producers have created it."""
    keyed_producers: int = 0
    """Producers that write to a compacted topic."""
    deleting_producers: int = 0
    """Producers that write to the compacted topic and delete keys in it; as many clients read it as a table."""
    delete_retention_ms: int = 86_400_000
    """Of the compacted topic: how long a tombstone stays after the first compaction."""
    compaction: str = "plain"
    """What the configs of the compacted topic say about when records are compacted; see `COMPACTIONS`."""
    cleaner_backoff_ms: int = 15_000
    """log.cleaner.backoff.ms."""
    index_interval_bytes: int = 4_096
    """log.index.interval.bytes."""
    fetch_sessions: int = 1_000
    """max.incremental.fetch.session.cache.slots."""
    has_metrics: bool = False
    """Whether nodes serve a page of metrics, which is read at rest."""
    has_cold_reads: bool = False
    """Whether some of the reads find their bytes not in the page cache, until all is healed."""
    device_s: float = 0.0
    """How long a call to the device takes."""
    pause_s: float = 1.0
    """Mean time between two actions."""
    work: float = 0.3
    """Which part of them are operations; the rest are faults."""
    faults: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    """Those of them that do not happen, because what they destroy is judged less strictly from then on."""
    verbs: tuple[str, ...] = ()
    added_verbs: tuple[str, ...] = ()
    """Operations that came later: they happen at times of their own, so that older ones stay where they were."""

    @classmethod
    def of(cls, seed: int) -> "Options":
        """Return the random options of this seed: schedule, sizes and faults."""
        rng = Rng(f"{seed}/options")
        faults = tuple(name for name in FAULTS if rng.random() < 0.5)
        deleting = Rng(f"{seed}/deleting producers")
        deleting_producers = deleting.choice((0, 0, 1))
        added = Rng(f"{seed}/added verbs")
        has_added = added.random() < _ADDED
        return cls(
            seed,
            policy=rng.choice((Policy.FIFO, Policy.HOSTS, Policy.HOSTS, Policy.PRIORITIES)),
            nodes=rng.choice((3, 3, 3, 4, 5)),
            servers=rng.choice((1, 1, 3)),
            session_timeout_ms=rng.choice((1_500, 3_000, 6_000)),
            protocol=rng.choice(("3.9-IV0", "3.9-IV0", "3.9-IV0", "3.9-IV0", "2.8-IV1", "2.6-IV0")),
            has_standby=Rng(f"{seed}/standby").random() < 0.5,
            directories=rng.choice((1, 2, 2, 3)),
            topics=rng.choice((2, 3, 4)),
            partitions=rng.choice((1, 2, 3)),
            lag_ms=rng.choice((1_500, 3_000, 6_000)),
            fetch_wait_ms=rng.choice((200, 500, 500)),
            fetch_bytes=added.choice((500, 2_000, 1 << 20)) if has_added else 1 << 20,
            fetchers=rng.choice((1, 1, 2)),
            segment_bytes=rng.choice((1_000, 4_000, 1 << 20)),
            checkpoint_ms=rng.choice((500, 2_000, 5_000)),
            producers=rng.choice((1, 2, 3)),
            consumers=rng.choice((1, 2)),
            follower_readers=Rng(f"{seed}/follower readers").choice((0, 1)),
            followers_read_committed=Rng(f"{seed}/followers read committed").random() < 0.5,
            compresses=Rng(f"{seed}/compresses").random() < 0.5,
            committers=Rng(f"{seed}/committers").choice((0, 1, 2)),
            deletes_offsets=Rng(f"{seed}/deletes offsets").random() < 0.5,
            reads_offsets=Rng(f"{seed}/reads offsets").random() < 0.5,
            members=Rng(f"{seed}/members").choice((0, 0, 2, 3)),
            static_members=Rng(f"{seed}/static members").random() < 0.5,
            copiers=Rng(f"{seed}/copiers").choice((0, 0, 1, 2)),
            copies_to_compacted=Rng(f"{seed}/copies to compacted").random() < 0.5,
            keyed_producers=Rng(f"{seed}/keyed producers").choice((0, 0, 0, 1)),
            deleting_producers=deleting_producers,
            delete_retention_ms=deleting.choice((1_000, 5_000, 60_000)) if deleting_producers else 86_400_000,
            cleaner_backoff_ms=deleting.choice((500, 2_000)) if deleting_producers else 15_000,
            compaction=deleting.choice(tuple(COMPACTIONS)) if deleting_producers else "plain",
            index_interval_bytes=Rng(f"{seed}/index interval").choice((0, 300, 4_096)),
            fetch_sessions=Rng(f"{seed}/fetch sessions").choice((8, 1_000)),
            has_metrics=Rng(f"{seed}/metrics").random() < 0.5,
            has_cold_reads=Rng(f"{seed}/cold reads").random() < 0.3,
            device_s=rng.choice((0.0, 0.001, 0.02)),
            pause_s=rng.choice((0.5, 1.0, 2.0, 4.0)),
            work=rng.choice((0.2, 0.3, 0.5)),
            faults=faults or ("kill",),
            spared=_draw_spared(Rng(f"{seed}/spared")),
            verbs=tuple(name for name in FIRST_OPERATIONS if rng.random() < 0.5) or ("create topic",),
            added_verbs=tuple(name for name in ADDED_OPERATIONS if has_added and added.random() < 0.5),
        )

    @classmethod
    def plain(cls, seed: int = 0, nodes: int = 3) -> "Options":
        """A small cluster in asyncio's callback order, without random faults: for hand-written scripts."""
        return cls(seed, nodes=nodes)


_LOSSES: Final = ("power loss", "power loss of several", "log directory fails", "flip bit")
"""Faults after which records may be missing. Nearly each seed draws one of them."""
_WRONG_CLOCKS: Final = ("clock jump", "clock drift")


def _draw_spared(rng: Rng) -> tuple[str, ...]:
    """Draw which faults do not happen: in half of the schedules no device loses anything, in half all clocks agree."""
    return (*(_LOSSES if rng.random() < 0.5 else ()), *(_WRONG_CLOCKS if rng.random() < 0.5 else ()))


_ADDED: Final = 0.5
"""In so many schedules there are operations that came later."""
FIRST_TOPICS_S: Final = 2.0
WARM_UP_S: Final = 5.0
CHAOS_S: Final = 40.0
_ADDED_PAUSE_S: Final = 2.5
"""Mean time between two of the operations that came later."""


def write_script(options: Options) -> Script:
    """Draw the script of a run from its options: a few topics, then random faults and operations."""
    actions = [ScheduledAction(FIRST_TOPICS_S + n / 10, "create topic") for n in range(options.topics)]
    rng, at_s, end_s = Rng(f"{options.seed}/happenings"), WARM_UP_S, WARM_UP_S + CHAOS_S
    while (at_s := round(at_s + rng.expovariate(1 / options.pause_s), 3)) < end_s:
        kind = rng.choice(options.verbs if rng.random() < options.work else options.faults)
        if kind not in options.spared:
            actions.append(ScheduledAction(at_s, kind))
    return Script(options, sorted([*actions, *_added_actions(options)], key=lambda action: action.at_s), end_s)


def _added_actions(options: Options) -> list[ScheduledAction]:
    """Draw when which of the operations happen that came later."""
    actions: list[ScheduledAction] = []
    rng, at_s = Rng(f"{options.seed}/added actions"), WARM_UP_S
    while options.added_verbs and (at_s := round(at_s + rng.expovariate(1 / _ADDED_PAUSE_S), 3)) < WARM_UP_S + CHAOS_S:
        actions.append(ScheduledAction(at_s, rng.choice(options.added_verbs)))
    return actions
