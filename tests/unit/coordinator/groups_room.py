"""A group coordinator with an offsets topic in memory, on a loop whose time is simulated."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from structlog.testing import capture_logs
from tests.support.controller_room import ListSink
from tests.support.waiting import settle

from klamm.coordinator.committed_offsets import Offset
from klamm.coordinator.coordinator import GroupCoordinator
from klamm.coordinator.decision_journal import FLUSH_DELAY_S, DecisionJournal
from klamm.coordinator.group import Group
from klamm.coordinator.handlers.offsets import CommitRequest, Errors, FetchedOffset
from klamm.coordinator.records import GroupKey, OffsetKey, read_group_value, read_key, read_offset_value
from klamm.coordinator.requests import JoinRequest, JoinResult, SyncRequest, SyncResult
from klamm.coordinator.settings import GroupSettings
from klamm.coordinator.topic_partitions import Appended, LogBounds
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import RealDisk
from klamm.runtime.time_slices import CountedSlices
from klamm.runtime.world import World
from klamm.sim.loop import SimulatedLoop
from klamm.sim.world import SeededRandomness, SimulatedClock
from klamm.telemetry.journal import Journal
from klamm.telemetry.journal_reader import Entry, parse_lines
from klamm.wire.records import batches
from klamm.wire.records.batch import assigned_prefix
from klamm.wire.records.record import Record, records

GROUP = "flights"
TYPE = "consumer"
RANGE = (("range", b"\x00\x00"),)
P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)


class MemoryOffsetsLog:
    """The partitions as bytes. `errors` are the next appends' results; `held` keeps appends waiting until released.

    After `reads_left` reads this broker does not lead them any more.
    """

    def __init__(self) -> None:
        self.partitions: dict[int, bytes] = {}
        self.ends: dict[int, int] = {}
        self.errors: list[ErrorCode] = []
        self.held: list[asyncio.Future[None]] | None = None
        self.acks: list[int] = []
        self.max_bytes = 1_048_588
        self.reads_left: int | None = None
        self.is_confirmed = True
        """Whether it is certain that no other broker leads."""
        self.confirmations: list[int] = []

    async def append(self, partition: int, batch: bytes, acks: int, timeout_ms: int) -> Appended:
        self.acks.append(acks)
        error = self.errors.pop(0) if self.errors else ErrorCode.NONE
        base = self.ends.get(partition, 0)
        if not error:
            [header] = batches(batch)
            assigned = assigned_prefix(header, base, 0) + batch[16:]
            self.partitions[partition] = self.partitions.get(partition, b"") + assigned
            self.ends[partition] = base + header.last_offset_delta + 1
        if self.held is not None:
            self.held.append(asyncio.get_running_loop().create_future())
            await self.held[-1]
        return Appended(error, -1 if error else base)

    def release(self, *numbers: int) -> None:
        """Complete the appends that wait: these, or all."""
        held = self.held or []
        for number in numbers or range(len(held)):
            if not held[number].done():
                held[number].set_result(None)

    async def confirm_leadership(self, partition: int) -> bool:
        self.confirmations.append(partition)
        return self.is_confirmed

    def max_batch_bytes(self, partition: int) -> int:
        return self.max_bytes

    def bounds(self, partition: int) -> LogBounds | None:
        return None if self.reads_left == 0 else LogBounds(0, self.ends.get(partition, 0))

    async def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        if self.reads_left is not None:
            self.reads_left -= 1
        await asyncio.sleep(0)
        content = self.partitions.get(partition, b"")
        found = b""
        for header in batches(content):
            if header.last_offset >= offset and (not found or len(found) + header.size <= max_bytes):
                found += content[header.position : header.position + header.size]
        return found

    def records(self, partition: int = 0) -> list[Record]:
        content = self.partitions.get(partition, b"")
        return [record for header in batches(content) if not header.is_control for record in records(content, header)]

    def stored(self, partition: int = 0) -> Iterator[str]:
        """Each record in words."""
        for record in self.records(partition):
            key = read_key(record.key or b"")
            if isinstance(key, GroupKey):
                yield "group removed" if record.value is None else _group_text(read_group_value("", record.value))
            elif isinstance(key, OffsetKey):
                value = "removed" if record.value is None else str(read_offset_value(record.value).offset)
                yield f"{key.partition}: {value}"


def _group_text(group: Group) -> str:
    members = {m.instance_id or m.member_id: m.assignment.decode() for m in group.members.values()}
    return f"generation {group.generation}: {members}"


@dataclass(slots=True)
class Room:
    loop: SimulatedLoop
    log: MemoryOffsetsLog
    groups: GroupCoordinator
    settings: GroupSettings
    sink: ListSink = field(default_factory=ListSink)
    journal: DecisionJournal = field(default_factory=DecisionJournal)

    def group(self, group_id: str = GROUP) -> Group:
        group = self.groups._context.groups.get(group_id)
        assert group is not None
        return group

    def now_ms(self) -> int:
        return SimulatedClock(self.loop).now_ms()

    def restart(self, settings: GroupSettings | None = None) -> "Room":
        """Another coordinator on the same log."""
        return make_room(self.loop, self.log, settings or self.settings)

    async def journaled(self) -> list[Entry]:
        """The lines about the group, once they are written."""
        await asyncio.sleep(2 * FLUSH_DELAY_S)
        return [e for e in parse_lines(self.sink.content) if e.kind == "group"]

    # ---- what members do

    def join(self, member_id: str = "", **changes: Any) -> "asyncio.Task[JoinResult]":
        """A JoinGroup, which may have to wait."""
        return asyncio.ensure_future(self.groups.join_group(join_request(member_id, **changes)))

    async def join_now(self, member_id: str = "", **changes: Any) -> JoinResult:
        """A JoinGroup that is answered at once."""
        task = self.join(member_id, **changes)
        await settle()
        assert task.done(), "JoinGroup still waits"
        return task.result()

    def sync(
        self, result: JoinResult, assignments: dict[str, bytes] | None = None, **changes: Any
    ) -> "asyncio.Task[SyncResult]":
        """A SyncGroup, which may have to wait."""
        request = SyncRequest(GROUP, result.generation, result.member_id, assignments=assignments or {})
        return asyncio.ensure_future(self.groups.sync_group(request._replace(**changes)))

    async def stable(self, count: int = 1, **changes: Any) -> list[JoinResult]:
        """A stable group of so many members; each is assigned the number it joined as."""
        joins = [self.join(client_id=f"c{number}", **changes) for number in range(count)]
        await asyncio.sleep(self.settings.group_initial_rebalance_delay_ms * (count > 1) / 1000 + 3.5)
        return await self.complete(joins)

    async def complete(self, joins: Sequence["asyncio.Task[JoinResult]"]) -> list[JoinResult]:
        """The results of JoinGroups whose rebalance is complete, after everybody's SyncGroup."""
        results = [await join for join in joins]
        assert [r.error for r in results] == [ErrorCode.NONE] * len(results)
        assignments = {r.member_id: str(number).encode() for number, r in enumerate(results)}
        syncs = [self.sync(r, assignments if r.members else None) for r in results]
        assert [(await s).assignment for s in syncs] == list(assignments.values())
        return results

    def heartbeat(self, result: JoinResult, **changes: Any) -> ErrorCode:
        asked = {"member_id": result.member_id, "instance_id": None, "generation": result.generation} | changes
        return self.groups.heartbeat(asked.pop("group_id", GROUP), **asked)

    async def commit(self, offsets: dict[TopicPartition, int], group_id: str = GROUP, **changes: Any) -> Errors:
        request = CommitRequest(group_id, {p: Offset(o, commit_timestamp=self.now_ms()) for p, o in offsets.items()})
        return await self.groups.commit_offsets(request._replace(**changes))

    def fetch(
        self, partitions: Sequence[TopicPartition] | None = None, group_id: str = GROUP, *, require_stable: bool = False
    ) -> dict[TopicPartition, int | ErrorCode]:
        """Offsets by partition, or the error."""
        error, fetched = self.groups.fetch_offsets(group_id, partitions, require_stable=require_stable)
        assert not error, error
        return {partition: _offset_or_error(found) for partition, found in fetched.items()}


def _offset_or_error(found: FetchedOffset) -> int | ErrorCode:
    return found.error or found.offset.offset


def join_request(member_id: str = "", **changes: Any) -> JoinRequest:
    request = JoinRequest(GROUP, member_id, None, "client", "/127.0.0.1", 60_000, 10_000, TYPE, RANGE)
    return request._replace(**changes)


def make_room(loop: SimulatedLoop, log: MemoryOffsetsLog, settings: GroupSettings) -> Room:
    world = World(SimulatedClock(loop), None, RealDisk(), SeededRandomness(1))  # type: ignore[arg-type]  # no network
    sink = ListSink()
    journal = DecisionJournal(Journal(sink, 1, SimulatedClock(loop)))
    coordinator = GroupCoordinator(world, settings, log, CountedSlices(), journal)
    coordinator.start(1)
    return Room(loop, log, coordinator, settings, sink, journal)


Body = Callable[[Room], Awaitable[None]]


def play(body: Body, **changes: Any) -> None:
    """Run a test's body against a coordinator that leads the only partition of the offsets topic."""

    async def main() -> None:
        room = make_room(loop, MemoryOffsetsLog(), replace(GroupSettings(), **changes))
        room.groups._ownership.elected(0, 0)
        await settle()
        await body(room)
        await room.groups.close()

    loop = SimulatedLoop()
    with capture_logs() as lines:
        loop.run(main())
    assert not [line for line in lines if line["event"].startswith("unexpected error")]
