"""A transaction coordinator with its topic in memory and scripted partition leaders, on a loop of simulated time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tests.support.controller_room import ListSink
from tests.support.waiting import settle
from tests.unit.coordinator.groups_room import MemoryOffsetsLog

from klamm.client.errors import ConnectionLost
from klamm.coordinator.decision_journal import FLUSH_DELAY_S, DecisionJournal
from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.coordinator.settings import TransactionSettings
from klamm.coordinator.transactions.coordinator import TransactionCoordinator
from klamm.coordinator.transactions.ports import Marker, NoLeader
from klamm.coordinator.transactions.records import read_key, read_value
from klamm.coordinator.transactions.requests import InitResult
from klamm.coordinator.transactions.transaction import Transaction
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.time_slices import CountedSlices
from klamm.sim.loop import SimulatedLoop
from klamm.sim.world import SimulatedClock
from klamm.telemetry.journal import Journal
from klamm.telemetry.journal_reader import Entry, parse_lines
from klamm.zk.errors import SessionExpired

ID = "copy"
P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
BROKER = Address("one", 9092)


class Leaders:
    """Every partition is led by `BROKER` unless `leaders` says otherwise."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, Address | NoLeader] = {}
        self.markers: list[Marker] = []
        self.errors: dict[TopicPartition, list[ErrorCode]] = {}
        """The next answers for a partition."""
        self.lost = 0
        """So many requests get no answer."""
        self.held: asyncio.Event | None = None
        self.gone: frozenset[TopicPartition] | None = frozenset()
        """The deleted partitions; None: nobody can find out."""

    async def deleted(self, partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        await asyncio.sleep(0)
        if self.gone is None:
            raise SessionExpired("", "there is no session")
        return partitions & self.gone

    def leader_of(self, partition: TopicPartition) -> Address | NoLeader:
        return self.leaders.get(partition, BROKER)

    async def write_marker(self, leader: Address, marker: Marker) -> Mapping[TopicPartition, ErrorCode]:
        self.markers.append(marker)
        if self.held is not None:
            await self.held.wait()
        if self.lost:
            self.lost -= 1
            raise ConnectionLost("gone")
        return {p: self.errors[p].pop(0) if self.errors.get(p) else ErrorCode.NONE for p in marker.partitions}


class ProducerIds:
    def __init__(self) -> None:
        self.next = 1_000
        self.is_refused = False
        self.held: asyncio.Event | None = None

    async def next_id(self) -> int | None:
        await asyncio.sleep(0)
        if self.held is not None:
            await self.held.wait()
        if self.is_refused:
            return None
        self.next += 1
        return self.next - 1


@dataclass(slots=True)
class Room:
    loop: SimulatedLoop
    log: MemoryOffsetsLog
    settings: TransactionSettings
    leaders: Leaders = field(default_factory=Leaders)
    ids: ProducerIds = field(default_factory=ProducerIds)
    sink: ListSink = field(default_factory=ListSink)
    coordinator: TransactionCoordinator = field(init=False)
    journal: DecisionJournal = field(init=False)

    def __post_init__(self) -> None:
        clock = SimulatedClock(self.loop)
        self.journal = DecisionJournal(Journal(self.sink, 1, clock))
        self.coordinator = TransactionCoordinator(
            self.settings, self.log, clock, self.ids, self.leaders, CountedSlices(), self.journal
        )
        self.coordinator.start(1)

    async def elect(self, epoch: int = 0) -> None:
        self.coordinator._ownership.elected(0, epoch)
        await settle()

    def resign(self, epoch: int | None = 0) -> None:
        self.coordinator._ownership.resigned(0, epoch)

    async def successor(self, epoch: int = 1) -> "Room":
        """Another coordinator on the same log."""
        other = Room(self.loop, self.log, self.settings, self.leaders, self.ids)
        await other.elect(epoch)
        return other

    async def journaled(self) -> list[Entry]:
        """The lines about transactions, once they are written."""
        await asyncio.sleep(2 * FLUSH_DELAY_S)
        return [e for e in parse_lines(self.sink.content) if e.kind == "transaction"]

    @property
    def transaction(self) -> Transaction:
        found = self.coordinator._context.transactions.get(ID)
        assert isinstance(found, Transaction), found
        return found

    def stored(self) -> list[str]:
        """Each record in words."""
        found = []
        for record in self.log.records():
            name = read_key(record.key or b"")
            assert name is not None
            if record.value is None:
                found.append("removed")
                continue
            read = read_value(name, record.value)
            partitions = " ".join(map(str, sorted(read.partitions)))
            found.append(f"{read.state} {read.producer_id}/{read.epoch} {partitions}".rstrip())
        return found

    # ---- what producers ask

    async def init(self, expected: tuple[int, int] | None = None, timeout_ms: int = 60_000) -> InitResult:
        known = None if expected is None else ProducerIdAndEpoch(*expected)
        return await self.coordinator.init_producer_id(ID, timeout_ms, known)

    async def producer(self) -> ProducerIdAndEpoch:
        error, producer_id, epoch = await self.init()
        assert not error, error
        return ProducerIdAndEpoch(producer_id, epoch)

    async def add(self, producer: ProducerIdAndEpoch, *partitions: TopicPartition) -> ErrorCode:
        return await self.coordinator.add_partitions(ID, producer, frozenset(partitions))

    def verify(
        self, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        return self.coordinator.verify_partitions(ID, producer, partitions)

    async def end(self, producer: ProducerIdAndEpoch, *, commit: bool = True) -> ErrorCode:
        return await self.coordinator.end_transaction(ID, producer, is_commit=commit)

    async def ongoing(self, *partitions: TopicPartition) -> ProducerIdAndEpoch:
        """A producer with these partitions in its transaction."""
        producer = await self.producer()
        assert await self.add(producer, *(partitions or (P0,))) == ErrorCode.NONE
        return producer


Body = Callable[[Room], Awaitable[None]]


def play(body: Body, **changes: int) -> None:
    """Run a test's body against a coordinator that leads the only partition of `__transaction_state`."""

    async def main() -> None:
        room = Room(loop, MemoryOffsetsLog(), replace(TransactionSettings(), **changes))
        await room.elect()
        await body(room)
        await room.coordinator.close()

    loop = SimulatedLoop()
    loop.run(main())
