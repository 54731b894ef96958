"""`klamm produce`: lines, JSON lines or whole files become records. Source of the options: kcat."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from klamm.cli.records.lines import FileInput, Input, split_lines
from klamm.cli.records.progress import Progress
from klamm.cli.records.record_json import GivenRecord, decode_record
from klamm.client.asynchronous import AsyncClient, AsyncSettings
from klamm.client.backoff import Backoff
from klamm.client.cluster import partition_counts, topic_ids_of
from klamm.client.partitioners import PARTITIONERS, Partitioner
from klamm.client.producer import Producer, ProducerSettings
from klamm.client.steps import retried
from klamm.model.cluster import Address
from klamm.model.errors import UsageError
from klamm.model.ids import TopicPartition
from klamm.runtime.signals import on_stop_signals
from klamm.runtime.standard_streams import StandardInput
from klamm.runtime.world import World
from klamm.wire.records import NewRecord
from klamm.wire.records.record import Headers

CLIENT_ID: Final = "klamm-produce"
STDIN: Final = "standard input"
_MAX_FILE_BYTES: Final = 1 << 30
_STICKY_BYTES: Final = 16 * 1024
"""So many bytes without keys go to one partition before another is chosen, as in Apache Kafka's client."""


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    topic: str | None
    """None: each JSON line names its own."""
    partition: int | None
    partitioner: str | None
    key: bytes | None
    key_delimiter: bytes | None
    delimiter: bytes
    headers: Headers
    empty_is_null: bool
    is_json: bool
    by_lines: bool
    """Whether files are read by lines."""
    files: tuple[str, ...]
    """Empty: standard input."""
    producer: ProducerSettings
    progress: bool | None


class Item(NamedTuple):
    """A message of the input, and what it is called in errors."""

    content: bytes
    name: str


async def produce(world: World, bootstrap: Sequence[Address], options: ProduceOptions) -> int:
    """Send the input as records; returns the exit status. Raises KlammError where a record cannot be delivered."""
    settings = AsyncSettings(CLIENT_ID, options.producer.request_timeout_s + 5)
    loop = asyncio.get_running_loop()
    async with AsyncClient(world, bootstrap, settings) as client:
        producer = Producer(client, options.producer)
        progress = Progress("Sent", loop.time, options.progress)
        routes = Routes(client, world, options)
        try:
            await producer.start()
            if options.topic is not None:
                await routes.find_topic(options.topic)
            return await _send_all(world, options, producer, routes, progress)
        finally:
            progress.end(*producer.delivered)
            await producer.close()


async def _send_all(
    world: World, options: ProduceOptions, producer: Producer, routes: "Routes", progress: Progress
) -> int:
    """Send the input until it ends, or a stop signal comes; what was read is delivered in either case."""
    interrupted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    main = asyncio.current_task()
    on_stop_signals(lambda: _interrupt(interrupted, main))
    reading = asyncio.ensure_future(_read_and_add(world, options, producer, routes, progress))
    waiting: set[asyncio.Future[None]] = {reading, interrupted, producer.failed}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if not reading.done():
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    failure = None if reading.cancelled() else reading.exception()
    if isinstance(failure, UsageError):
        await producer.flush()
        raise UsageError(f"{failure} The {producer.delivered.records:,} records before it were sent.")
    if failure is not None:
        raise failure
    await producer.flush()
    return _INTERRUPTED if interrupted.done() else 0


_INTERRUPTED: Final = 130


def _interrupt(interrupted: "asyncio.Future[None]", task: "asyncio.Task[Any] | None") -> None:
    """Stop reading; the second time give up what is not delivered yet."""
    if not interrupted.done():
        interrupted.set_result(None)
    elif task is not None:
        task.cancel()


async def _read_and_add(
    world: World, options: ProduceOptions, producer: Producer, routes: "Routes", progress: Progress
) -> None:
    """Give each message of the input to the producer, not faster than it is sent."""
    to_record = _record_maker(options)
    async for items in _items(world, options):
        now_ms = world.clock.now_ms()
        for content, name in items:
            try:
                given = to_record(content)
                partition, record = await routes.route(given, now_ms)
            except UsageError as error:
                raise UsageError(f"{name}: {error}") from None
            producer.add(partition, record, name)
        await producer.wait_for_room()
        progress.update(*producer.delivered)


def _record_maker(options: ProduceOptions) -> Callable[[bytes], GivenRecord]:
    """Return the function that makes a record of a message of the input."""

    def from_json(line: bytes) -> GivenRecord:
        """Parse a JSON line and add the headers of the command line. Raises UsageError."""
        given = decode_record(line)
        record = given.record._replace(headers=(*given.record.headers, *options.headers))
        if options.key is not None and record.key is None:
            record = record._replace(key=options.key)
        return given._replace(record=record)

    def from_text(line: bytes) -> GivenRecord:
        """Make a record of a text message: what comes before the key delimiter is the key."""
        key, value = options.key, line
        if options.key_delimiter is not None and options.key_delimiter in line:
            key, _, value = line.partition(options.key_delimiter)
        if options.empty_is_null:
            return GivenRecord(None, None, None, NewRecord(value or None, key or None, headers=options.headers))
        return GivenRecord(None, None, None, NewRecord(value, key, headers=options.headers))

    return from_json if options.is_json else from_text


# ---- the input


async def _items(world: World, options: ProduceOptions) -> AsyncIterator[list[Item]]:
    """The messages of standard input or of the files, as they come. Raises UsageError."""
    if not options.files:
        async for items in _numbered(StandardInput(), options.delimiter, STDIN):
            yield items
    for path in options.files:
        try:
            if options.by_lines or options.is_json:
                source = FileInput(world.disk, path)
                try:
                    async for items in _numbered(source, options.delimiter, path):
                        yield items
                finally:
                    source.close()
            else:
                yield [Item(_read_whole(world, path), path)]
        except OSError as error:
            raise UsageError(f"Cannot read {path}: {error.strerror or error}. Check the path.") from None


async def _numbered(source: Input, delimiter: bytes, name: str) -> AsyncIterator[list[Item]]:
    """Yield the lines of the input with their line numbers, which begin with 1."""
    number = 1
    async for lines in split_lines(source, delimiter, name):
        yield [Item(line, f"{name}, line {i}") for i, line in enumerate(lines, start=number)]
        number += len(lines)


def _read_whole(world: World, path: str) -> bytes:
    """The content of a file as one message. Raises UsageError, OSError."""
    if world.disk.is_directory(path):
        raise UsageError(f"{path} is a directory. Give files.")
    if (size := world.disk.size(path)) > _MAX_FILE_BYTES:
        raise UsageError(
            f"{path} has {size:,} bytes, too many for one record. Pass --lines to send each line as a record."
        )
    return world.disk.read(path)


# ---- where records go


class Routes:
    """Chooses the partition of each record: its own, that of the options, by its key, or any."""

    def __init__(self, client: AsyncClient, world: World, options: ProduceOptions) -> None:
        self._client = client
        self._options = options
        self._partitioner: Partitioner = PARTITIONERS[options.partitioner or next(iter(PARTITIONERS))]
        self._random = world.randomness.stream("produce")
        self._counts: dict[str, int] = {}
        self._sticky: dict[str, tuple[int, int]] = {}
        """Topic -> the partition for records without keys, and how many bytes it still gets."""

    async def route(self, given: GivenRecord, now_ms: int) -> tuple[TopicPartition, NewRecord]:
        """The partition, and the record with its timestamp. Raises UsageError."""
        topic = self._options.topic or given.topic
        if topic is None:
            raise UsageError('the record names no topic: add "topic", or pass --topic.')
        count = self._counts.get(topic) or await self.find_topic(topic)
        number = self._options.partition
        if number is None and self._options.partitioner is None:
            number = given.partition
        if number is None:
            number = self._by_key(topic, given.record, count)
        elif not 0 <= number < count:
            remedy = "Pass --partition or --partitioner." if self._options.partition is None else "Check --partition."
            raise UsageError(f"partition {number} does not exist: {topic} has partitions 0-{count - 1}. {remedy}")
        timestamp = now_ms if given.timestamp is None else given.timestamp
        return TopicPartition(topic, number), given.record._replace(timestamp=timestamp)

    async def find_topic(self, topic: str) -> int:
        """The number of partitions of a topic, from the brokers. Raises UsageError, Unreachable."""
        cluster = self._client.cluster
        backoff = Backoff(asyncio.get_running_loop().time, self._options.producer.timeout_s)
        found = await self._client.run(retried("asking for metadata", lambda: cluster.refresh([topic]), backoff))
        counts = partition_counts(found)
        if topic not in counts:
            raise UsageError(
                f"topic {topic} does not exist. Create it with `klamm topics create --topic {topic}`, or list the "
                "topics with `klamm topics list`."
            )
        cluster.topic_ids |= topic_ids_of(found)
        self._counts |= counts
        return counts[topic]

    def _by_key(self, topic: str, record: NewRecord, count: int) -> int:
        """Choose the partition by the hash of the key.

        Records without a key go to one partition for a while, then to another.
        """
        if record.key is not None:
            return self._partitioner(record.key, count)
        number, left = self._sticky.get(topic, (0, 0))
        if left <= 0:
            number, left = self._random.randrange(count), _STICKY_BYTES
        self._sticky[topic] = number, left - len(record.value or b"")
        return number


def check_options(options: ProduceOptions) -> None:
    """Raise UsageError for options that exclude each other."""
    if options.topic is None and not options.is_json:
        raise UsageError("--topic is missing. Add it, or give records in JSON (--json) that name their topic.")
    if options.is_json and options.key_delimiter is not None:
        raise UsageError('--key-delimiter has no meaning with --json: give the key as the field "key".')
    if options.key is not None and options.key_delimiter is not None:
        raise UsageError("--key cannot be used with --key-delimiter: omit one of them.")
    if options.partition is not None and options.partitioner is not None:
        raise UsageError("--partition cannot be used with --partitioner: omit one of them.")
    if options.by_lines and not options.files:
        raise UsageError(
            "--lines is only for files; each line of standard input is a message anyway. Omit --lines, or name files."
        )
