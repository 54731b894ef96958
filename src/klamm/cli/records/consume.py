"""`klamm consume`: records to lines, from chosen partitions or as a member of a group. Source of the options: kcat."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from klamm.cli.output import print_error
from klamm.cli.records.group_session import GroupSession
from klamm.cli.records.positions import Start, StartKind, offsets_at, positions_at, read_bounds
from klamm.cli.records.printing import Printer
from klamm.cli.records.progress import Progress
from klamm.client.asynchronous import AsyncClient, AsyncSettings
from klamm.client.backoff import Backoff
from klamm.client.cluster import partition_counts, topic_ids_of
from klamm.client.group_member import MemberSettings, MembershipLost
from klamm.client.leaders import OffsetAndEpoch
from klamm.client.offsets import EARLIEST, LATEST
from klamm.client.reader import LIMITS, Fetched, Gap, LogReader
from klamm.client.steps import retried
from klamm.model.cluster import Address
from klamm.model.errors import UsageError
from klamm.model.ids import TopicPartition
from klamm.runtime.signals import on_stop_signals
from klamm.runtime.standard_streams import StandardOutput, discard_output, on_output_closed
from klamm.runtime.world import World

CLIENT_ID: Final = "klamm-consume"
_REQUEST_TIMEOUT_S: Final = 30.0
INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    """Empty: all, or with a group those that it assigns."""
    start: Start | None
    until_ms: int | None
    """Read only records before the first that is so late."""
    group: str | None
    member: MemberSettings | None
    """None: no subscription."""
    commits: bool
    exits_at_end: bool
    count: int | None
    read_committed: bool
    make_printer: Callable[[], Printer]
    timeout_s: float
    progress: bool | None


class _Reading:
    """What was read so far, and what is left to be read, over all generations of a group."""

    def __init__(self, options: ConsumeOptions, progress: Progress) -> None:
        self.options = options
        self.progress = progress
        self.printer = options.make_printer()
        self.left = options.count
        self.records = 0
        self.size = 0
        self.positions: dict[TopicPartition, OffsetAndEpoch] = {}
        """The next offset to read of each partition; everything before it is printed."""
        self.ends: dict[TopicPartition, int] = {}
        """The end of each partition at its last fetch."""
        self.limits: dict[TopicPartition, int] = {}
        """Where reading ends, with --until."""
        self.has_no_reader = False
        """Whether whoever read the output has closed it."""

    @property
    def is_complete(self) -> bool:
        """Whether as many records are printed as --count asks for."""
        return self.left == 0

    @property
    def lag(self) -> int:
        """How many offsets, over all partitions, are not read yet."""
        return sum(max(0, end - self.positions[p].offset) for p, end in self.ends.items() if p in self.positions)

    def is_done(self, partition: TopicPartition, *, is_at_end: bool) -> bool:
        """Whether nothing more is to be read of the partition."""
        limit = self.limits.get(partition)
        is_at_limit = limit is not None and self.positions[partition].offset >= limit
        return is_at_limit or (self.options.exits_at_end and is_at_end)


async def consume(world: World, bootstrap: Sequence[Address], options: ConsumeOptions) -> int:
    """Print records until an end is reached or a stop signal comes; returns the exit status. Raises KlammError."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[None] = loop.create_future()
    main = asyncio.current_task()
    on_stop_signals(lambda: _on_signal(stop, main))
    settings = AsyncSettings(CLIENT_ID, _REQUEST_TIMEOUT_S)
    reading = _Reading(options, Progress("Read", loop.time, options.progress))
    on_output_closed(lambda: _on_no_reader(reading, stop))
    async with (
        AsyncClient(world, bootstrap, settings) as client,
        AsyncClient(world, bootstrap, settings) as coordinator,  # a heartbeat must not wait behind a fetch
    ):
        available = await _find_partitions(client, options)
        session = GroupSession(coordinator, options.group, options.member, options.timeout_s, options.commits)
        try:
            await _read_generations(client, session, reading, available, stop)
        except BrokenPipeError:
            reading.has_no_reader = True  # it has had enough
        finally:
            if reading.has_no_reader:
                discard_output()
            reading.progress.end(reading.records, reading.size, reading.lag)
            await session.close()
    is_short = (options.exits_at_end or options.count is not None) and not reading.is_complete
    return INTERRUPTED if stop.done() and is_short and not reading.has_no_reader else 0


def _on_no_reader(reading: _Reading, stop: "asyncio.Future[None]") -> None:
    """Stop reading, because nobody reads the output any more: no record may come that would tell."""
    reading.has_no_reader = True
    if not stop.done():
        stop.set_result(None)


def _on_signal(stop: "asyncio.Future[None]", main: "asyncio.Task[object] | None") -> None:
    """Stop after what is being printed; the second time at once."""
    if not stop.done():
        stop.set_result(None)
    elif main is not None:
        main.cancel()


async def _find_partitions(client: AsyncClient, options: ConsumeOptions) -> list[TopicPartition]:
    """The partitions of the topics, or those of --partition. Raises UsageError, Unreachable."""
    backoff = Backoff(asyncio.get_running_loop().time, options.timeout_s)
    refresh = lambda: client.cluster.refresh(options.topics)  # noqa: E731
    found = await client.run(retried("asking for metadata", refresh, backoff))
    counts = partition_counts(found)
    client.cluster.topic_ids = topic_ids_of(found)
    for topic in options.topics:
        if topic not in counts:
            raise UsageError(f"--topic {topic}: there is no such topic. `klamm topics list` shows the topics.")
        if missing := [n for n in options.partitions if n >= counts[topic]]:
            raise UsageError(f"--partition {missing[0]}: {topic} has partitions 0-{counts[topic] - 1} only.")
    return [TopicPartition(t, n) for t in options.topics for n in options.partitions or range(counts[t])]


# ---- generations


async def _read_generations(
    client: AsyncClient,
    session: GroupSession,
    reading: _Reading,
    available: Sequence[TopicPartition],
    stop: "asyncio.Future[None]",
) -> None:
    """Read until the end; after each rebalance of the group, read the partitions that it assigns then."""
    while not stop.done():
        joining = asyncio.ensure_future(session.join())
        waiting: set[asyncio.Future[Any]] = {joining, stop}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not joining.done():
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
            return
        assigned = joining.result()
        partitions = available if assigned is None else await _known(client, assigned)
        await _begin(client, session, reading, partitions)
        if await _read_generation(client, session, reading, stop):
            return


async def _known(client: AsyncClient, assigned: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
    """Return the assigned partitions, after reading the current ids of their topics."""
    if assigned:
        found = await client.run(client.cluster.refresh({p.topic for p in assigned}))
        client.cluster.topic_ids = topic_ids_of(found)
    return assigned


async def _begin(
    client: AsyncClient, session: GroupSession, reading: _Reading, partitions: Sequence[TopicPartition]
) -> None:
    """Set the position in each partition for a new generation: the group's committed offset, or what options say."""
    options = reading.options
    backoff = Backoff(asyncio.get_running_loop().time, options.timeout_s)
    bounds = await read_bounds(client, partitions, backoff, read_committed=options.read_committed)
    committed = await session.committed(partitions)
    start = options.start or Start(StartKind.BEGINNING if options.group is None else StartKind.END)
    others = {p: found for p, found in bounds.items() if p not in committed}
    begins = await positions_at(client, start, others, backoff)
    reading.positions = committed | {p: OffsetAndEpoch(offset) for p, offset in begins.items()}
    reading.ends = {p: found.end for p, found in bounds.items()}
    reading.limits = {}
    if options.until_ms is not None:
        reading.limits = await offsets_at(client, options.until_ms, bounds, backoff)


async def _read_generation(
    client: AsyncClient, session: GroupSession, reading: _Reading, stop: "asyncio.Future[None]"
) -> bool:
    """Read with fixed partitions; returns False where the group rebalances, and True at the end."""
    options = reading.options
    open_partitions = {
        p: at for p, at in reading.positions.items() if not reading.is_done(p, is_at_end=at.offset >= reading.ends[p])
    }
    limits = LIMITS._replace(read_committed=options.read_committed)
    from_end = options.start is not None and options.start.kind is StartKind.END
    reset = LATEST if from_end or (options.start is None and options.group is not None) else EARLIEST
    reader = LogReader(client, open_partitions, limits, options.timeout_s, reset)
    reader.start()
    session.start(lambda: reading.positions)
    try:
        output = StandardOutput()
        while not reading.is_complete and (open_partitions or not (options.exits_at_end or reading.limits)):
            taking = asyncio.ensure_future(reader.take())
            try:
                waiting: set[asyncio.Future[Any]] = {taking, stop, session.ended}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if stop.done():
                    return True
                if session.ended.done():
                    session.ended.result()
                    return False
                fetched = taking.result()
            finally:
                taking.cancel()
            if isinstance(fetched, Gap):
                reading.positions[fetched.partition] = fetched.next_position
                _report_gap(fetched)
                continue
            await _print(reading, output, fetched)
            if reading.is_done(fetched.partition, is_at_end=fetched.is_at_end):
                open_partitions.pop(fetched.partition, None)
                reader.stop_reading(fetched.partition)
        return True
    finally:
        await reader.close()
        await _stop_generation(session, reading)


async def _print(reading: _Reading, output: StandardOutput, fetched: Fetched) -> None:
    """Print the fetched records, as far as the options allow, and advance the position after them."""
    partition = fetched.partition
    if fetched.position < reading.positions[partition].offset:
        return
    for block in reading.printer.blocks(fetched, reading.limits.get(partition), reading.left):
        if block.content:
            await output.write(block.content)
        reading.positions[partition] = OffsetAndEpoch(block.next_position, block.leader_epoch)
        reading.records += block.records
        reading.size += block.size
        if reading.left is not None:
            reading.left -= block.records
    reading.ends[partition] = fetched.end
    reading.progress.update(reading.records, reading.size, reading.lag)


async def _stop_generation(session: GroupSession, reading: _Reading) -> None:
    """Commit what was printed; where the group continued without this member, say what will be read again."""
    try:
        await session.stop(reading.positions)
    except MembershipLost as lost:
        print_error(f"{lost}. Records since the last commit may be read again.")


def _report_gap(gap: Gap) -> None:
    """Print which offsets cannot be read any more, why, and where reading continues."""
    print_error(
        f"{gap.partition}: offset {gap.position} is not in the log ({gap.reason}). Reading goes on at offset "
        f"{gap.next_position.offset}."
    )


def check_options(options: ConsumeOptions) -> None:
    """Raise UsageError for options that exclude each other."""
    if not options.topics:
        raise UsageError("--topic is missing. `klamm topics list` shows the topics.")
    if options.start is not None and options.start.kind is StartKind.STORED and options.group is None:
        raise UsageError("--offset stored needs --group, whose committed offsets are meant.")
