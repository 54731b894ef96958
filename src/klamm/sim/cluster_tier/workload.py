"""The clients of a schedule: producers, consumers, committers, group members and copiers, each on a host of its own.

Each draws from a generator of its own, so that a client more or less does not change what the others do.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition
from klamm.runtime.randomness import Rng
from klamm.sim.cluster_tier.clients.committer import Committer
from klamm.sim.cluster_tier.clients.consumer import Consumer
from klamm.sim.cluster_tier.clients.copier import Copier
from klamm.sim.cluster_tier.clients.locator import open_client
from klamm.sim.cluster_tier.clients.member import Member
from klamm.sim.cluster_tier.clients.producer import Producer, ProducerStyle
from klamm.sim.cluster_tier.clients.table_reader import TableReader
from klamm.sim.cluster_tier.history import COMPACTED
from klamm.sim.cluster_tier.keyed_records import DELETING, keyed_record
from klamm.sim.cluster_tier.node import PORT
from klamm.sim.cluster_tier.operations import FIRST_TOPIC, OperatedCluster, create_compacted_topic
from klamm.sim.cluster_tier.options import COMPACTIONS, Options
from klamm.sim.cluster_tier.trace import Assigned, ClientEvent, Send
from klamm.sim.world import Universe
from klamm.wire.compression import Codec

GROUP: Final = "readers"
_KEYED_PAUSE_S: Final = 0.2
_CREATE_PAUSE_S: Final = 5.0
_SILENT_AFTER_S: Final = 10.0
"""After all is healed: coordinators are found again, and a session and a rebalance end before the last look."""


class RunWithClients(OperatedCluster, Protocol):
    """A run of a schedule, as its clients see it."""

    universe: Universe
    options: Options
    is_healed: bool


class ClientWorkload:
    def __init__(self, run: RunWithClients, heal_at_s: float, tell: Callable[[Send | ClientEvent], None]) -> None:
        self._run = run
        self._heal_at_s = heal_at_s
        self._tell = tell
        self._has_silent_member = False
        self.sends = True
        """Whether producers continue sending."""

    def start(self) -> None:
        """Start as many clients of each kind as the options of the run say."""
        options = self._run.options
        for number in range(1, options.producers + 1):
            self._start_producer(number)
        for number in range(1, options.keyed_producers + 1):
            self._start_keyed_producer(f"keyed-{number}")
        for number in range(1, options.deleting_producers + 1):
            self._start_keyed_producer(f"{DELETING}-{number}")
            self._start_table_reader(number)
        for number in range(1, options.consumers + 1):
            self._start_consumer(f"consumer-{number}", reads_committed=options.copiers > 0 and number == 1)
        for number in range(1, options.follower_readers + 1):
            reads_committed = options.copiers > 0 and options.followers_read_committed
            self._start_consumer(f"follower-reader-{number}", reads_committed=reads_committed, reads_followers=True)
        for number in range(1, options.committers + 1):
            self._start_committer(number)
        for number in range(1, options.members + 1):
            self._start_member(number)
        for number in range(1, options.copiers + 1):
            self._start_copier(number)

    def _start_producer(self, number: int) -> None:
        """Start a producer with random settings on a host of its own."""
        name = f"producer-{number}"
        host, world = self._run.universe.start(name)
        rng = Rng(f"{self._run.options.seed}/{name}")
        style = ProducerStyle(
            acks=rng.choice((-1, -1, -1, 1, 0)) if number > 1 else -1,
            is_idempotent=rng.random() < 0.7,
            pause_s=rng.choice((0.1, 0.3, 1.0)),
            codec=self._codec_of(name),
        )
        style = style._replace(is_idempotent=style.is_idempotent and style.acks == -1)
        self._run.log(f"{name} sends with {style}")

        async def run() -> None:
            """Run the producer until the simulation cancels it."""
            client = open_client(world, name, self._run.options.nodes, PORT)
            await Producer(name, world, client, style, rng, self.writable, self._tell).run()

        self._run.loop.spawn(host, run(), name)

    def _codec_of(self, producer: str) -> Codec:
        """How this producer compresses its batches."""
        options = self._run.options
        return Rng(f"{options.seed}/{producer}/codec").choice(tuple(Codec)) if options.compresses else Codec.NONE

    def _start_keyed_producer(self, name: str) -> None:
        """Start a producer that creates the compacted topic and writes a few keys to it again and again."""
        host, world = self._run.universe.start(name)
        rng = Rng(f"{self._run.options.seed}/{name}")
        style = ProducerStyle(acks=-1, is_idempotent=True, pause_s=_KEYED_PAUSE_S, codec=self._codec_of(name))

        def partitions() -> Sequence[TopicPartition]:
            """Return the compacted partition while producers may send."""
            return (COMPACTED,) if self.sends and COMPACTED in self._run.history.states.versions else ()

        async def run() -> None:
            """Create the topic, and run the producer until the simulation cancels it."""
            while COMPACTED not in self._run.history.states.versions:
                await asyncio.sleep(_CREATE_PAUSE_S)
                with contextlib.suppress(KlammError):
                    await create_compacted_topic(self._run, self._compaction_configs)
            client = open_client(world, name, self._run.options.nodes, PORT)
            await Producer(name, world, client, style, rng, partitions, self._tell, keyed_record).run()

        self._run.loop.spawn(host, run(), name)

    @property
    def _compaction_configs(self) -> dict[str, str]:
        """Configs of the compacted topic where producers delete keys in it."""
        options = self._run.options
        if not options.deleting_producers:
            return {}
        return {"delete.retention.ms": str(options.delete_retention_ms), **COMPACTIONS[options.compaction]}

    def _start_table_reader(self, number: int) -> None:
        """Start a client that reads the compacted topic as a table, on a host of its own."""
        name = f"table-reader-{number}"
        host, world = self._run.universe.start(name)
        rng = Rng(f"{self._run.options.seed}/{name}")

        def partition() -> TopicPartition | None:
            """Return the compacted partition; None before it is there."""
            return COMPACTED if COMPACTED in self._run.history.states.versions else None

        async def run() -> None:
            """Read the table until the simulation cancels it."""
            client = open_client(world, name, self._run.options.nodes, PORT)
            reads_committed = self._run.options.copies_to_compacted
            await TableReader(name, client, rng, partition, self._tell, reads_committed=reads_committed).run()

        self._run.loop.spawn(host, run(), name)

    def _start_consumer(self, name: str, *, reads_committed: bool = False, reads_followers: bool = False) -> None:
        """Start a consumer on a host of its own."""
        host, world = self._run.universe.start(name)
        rng = Rng(f"{self._run.options.seed}/{name}")

        async def run() -> None:
            """Run the consumer until the simulation cancels it."""
            client = open_client(world, name, self._run.options.nodes, PORT)
            consumer = Consumer(
                name,
                client,
                rng,
                self.readable,
                self._tell,
                reads_committed=reads_committed,
                reads_followers=reads_followers,
            )
            await consumer.run()

        self._run.loop.spawn(host, run(), name)

    def _start_committer(self, number: int) -> None:
        """Start a client that commits offsets of a group of its own, on a host of its own."""
        name = f"group-{number}"
        host, world = self._run.universe.start(name)
        rng = Rng(f"{self._run.options.seed}/{name}")

        def partition() -> TopicPartition | None:
            """Return a partition to commit an offset for; None once all faults have ended."""
            return None if self._run.is_healed else next(iter(self.readable()), None)

        async def run() -> None:
            """Run the client that commits offsets until all faults have ended."""
            client = open_client(world, name, self._run.options.nodes, PORT)
            options = self._run.options
            deletions = Rng(f"{options.seed}/{name}/deletions") if options.deletes_offsets else None
            reads = Rng(f"{options.seed}/{name}/reads") if options.reads_offsets else None
            await Committer(name, client, rng, partition, self._tell, deletions, reads).run()

        self._run.loop.spawn(host, run(), name)

    def _start_member(self, number: int) -> None:
        """Start a member of the group that reads the first topic, on a host of its own."""
        name = f"member-{number}"
        host, world = self._run.universe.start(name)
        rng = Rng(f"{self._run.options.seed}/{name}")

        async def run() -> None:
            """Run the member, which joins and leaves its group at random, and stays once all faults have ended."""
            client = open_client(world, name, self._run.options.nodes, PORT)
            instance_id = name if self._run.options.static_members else None
            member = Member(
                GROUP, client, rng, [FIRST_TOPIC], self._tell, may_retire=number > 1, instance_id=instance_id
            )
            member.may_go = lambda: not self._run.is_healed
            member.may_commit = lambda: self.sends
            member.stops_heartbeats = self._stops_heartbeats
            await member.run()

        self._run.loop.spawn(host, run(), name)

    def _stops_heartbeats(self, assigned: Assigned) -> bool:
        """Whether this member stops sending heartbeats at rest: it has partitions that another member can take over.

        The coordinator notices that only by the session timeout.
        """
        if self._has_silent_member or self._run.loop.now < self._heal_at_s + _SILENT_AFTER_S or not assigned.partitions:
            return False
        self._has_silent_member = self._run.tier.has_other_members(assigned)
        return self._has_silent_member

    def _start_copier(self, number: int) -> None:
        """Start a client that copies records of the first topic, which is never deleted, to others."""
        name = f"copier-{number}"
        host, world = self._run.universe.start(name)
        rng = Rng(f"{self._run.options.seed}/{name}")

        def source() -> TopicPartition | None:
            """Return the partition to copy from: the first of a topic that exists; None if there is none."""
            return next(iter(self.readable()), None)

        def destinations() -> Sequence[TopicPartition]:
            """Return the partitions to copy to: those of other topics than the source's, while producers may send."""
            first = source()
            found = [p for p in self.writable() if first is not None and p.topic != first.topic]
            has_compacted = self._run.options.copies_to_compacted and COMPACTED in self._run.history.states.versions
            return [*found, COMPACTED] if has_compacted and self.sends else found

        async def run() -> None:
            """Run a copier with its own client until it is cancelled."""
            client = open_client(world, name, self._run.options.nodes, PORT)
            await Copier(name, world, client, rng, source, destinations, self._tell).run()

        self._run.loop.spawn(host, run(), name)

    def writable(self) -> Sequence[TopicPartition]:
        """The partitions to which producers may send; empty after they were stopped."""
        return self.readable() if self.sends else ()

    def readable(self) -> Sequence[TopicPartition]:
        """The partitions of topics that were not deleted, in order."""
        topics = self._run.tier.topics
        versions = self._run.history.states.versions
        return sorted(p for p in versions if p.topic in topics and not topics[p.topic].is_gone)
