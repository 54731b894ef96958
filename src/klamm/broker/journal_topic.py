"""The journal as a topic: the lines of this node's journal files are also produced to one partition for all nodes.

The files are the buffer: while the topic is unavailable no line is lost until its file is rotated away, and then a line
in the topic says how many files. Lines arrive at least once, in this node's order. `node`, the incarnation in `cause`
and `seq` identify repetitions; `controller_epoch` and `seq` order the lines of all nodes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from posixpath import join
from typing import Any, Final, Protocol

import msgspec
import structlog

from klamm.client.records import produce_error_code, produce_request
from klamm.client.versions import ANY, Request
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.world import World
from klamm.telemetry.journal_tail import Position, Tailed, read_next_lines
from klamm.wire.api import ApiKey
from klamm.wire.compression import Codec
from klamm.wire.messages import (
    CreatableTopic,
    CreateTopicsRequest,
)
from klamm.wire.records import NewRecord, build_batch

BATCH_BYTES: Final = 256 * 1024
"""Of lines, before compression; less where the topic's `max.message.bytes` is smaller."""
POLL_INTERVAL_S: Final = 0.5
RETRY_BACKOFF_S: Final = 1.0
PRODUCE_TIMEOUT_S: Final = 30.0
_MAX_REPLICATION_FACTOR: Final = 3
log = structlog.get_logger("journal-topic")

AskController = Callable[[ApiKey, int, Callable[[int], Any]], Awaitable[Any]]


class Client(Protocol):
    """`AsyncClient`, as far as it is needed here."""

    async def ask(self, address: Address, request: Request, timeout_s: float | None = None) -> Any:
        """Send the request to the address and return the response; `timeout_s` None means the default timeout."""

    def drop(self, address: Address) -> None:
        """Close the connection to the address; the next request opens a new one."""

    def close(self) -> None:
        """Close all connections."""


class Metadata(Protocol):
    """What is needed of the metadata cache."""

    @property
    def brokers(self) -> Any:
        """The live brokers by id."""

    def has_topic(self, topic: str) -> bool:
        """Whether the metadata cache knows the topic."""

    def state(self, topic_partition: TopicPartition) -> Any:
        """Return leader and ISR of the partition; None where it is not known."""

    def endpoint(self, broker_id: BrokerId) -> tuple[str, int] | None:
        """Return host and port of the broker; None where it is not live."""


class _Line(msgspec.Struct):
    ts_ms: int = 0


class TopicUnavailable(KlammError):
    """The batch was not written; a later attempt may succeed."""


class JournalTopic:
    """Publishes the journal to a topic in the background; nothing waits for it."""

    def __init__(
        self,
        world: World,
        directory: str,
        node: BrokerId,
        topic: str,
        metadata: Metadata,
        client: Client,
        ask_controller: AskController,
    ) -> None:
        self._world = world
        self._directory = directory
        self._node = node
        self._topic = topic
        self._metadata = metadata
        self._client = client
        self._ask_controller = ask_controller
        self._path = join(directory, f"klamm-journal-{node}.published")
        self._batch_bytes = BATCH_BYTES
        self._leader: Address | None = None
        self._task: asyncio.Task[None] | None = None
        self.lost_files = 0
        """Rotated away before their lines were in the topic."""
        self.is_waiting = False
        """Whether the last batch was not written."""

    def start(self) -> None:
        """Start the task that publishes journal lines to the topic."""
        self._task = asyncio.get_running_loop().create_task(self._publish_in_loop(), name="journal-topic")

    async def close(self) -> None:
        """Stop publishing and close the connections; lines that were not published remain in the journal file."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._client.close()

    async def _publish_in_loop(self) -> None:
        """Publish new journal lines as they are written; an error is logged and retried."""
        position = self._read_position()
        while True:
            try:
                tailed = await self._world.disk.in_thread(self._read_lines, position)
                if tailed.lost_files:
                    self.lost_files += tailed.lost_files
                    tailed.lines.insert(0, self._lost_line(tailed.lost_files))
                if not tailed.lines:
                    await asyncio.sleep(POLL_INTERVAL_S)
                    continue
                await self._produce_lines(tailed.lines)
                self.is_waiting = False
                position = tailed.position
                await self._world.disk.in_thread(self._world.disk.write_atomically, self._path, position.encode())
            except (KlammError, OSError) as error:
                self.is_waiting = True
                log.debug("cannot write to the journal topic; retrying", topic=self._topic, reason=str(error))
                await asyncio.sleep(RETRY_BACKOFF_S)
            except Exception as error:  # a bug, or a malformed response: the lines are kept, and retried
                self.is_waiting = True
                log.error(
                    "cannot write to the journal topic; retrying, the lines stay in the journal files",
                    topic=self._topic,
                    reason=repr(error),
                    retry_s=RETRY_BACKOFF_S,
                )
                await asyncio.sleep(RETRY_BACKOFF_S)

    def _read_position(self) -> Position:
        """Return the saved position in the journal, from which publishing continues.

        The first line where none is saved.
        """
        try:
            return Position.decode(self._world.disk.read(self._path))
        except OSError:
            return Position()

    def _read_lines(self, position: Position) -> Tailed:
        """Read the journal lines after this position."""
        return read_next_lines(self._world.disk, self._directory, self._node, position, self._batch_bytes)

    def _lost_line(self, files: int) -> bytes:
        """A journal line for the topic that says that files were rotated away before they were published."""
        facts = {"ts_ms": self._world.clock.now_ms(), "node": self._node, "controller_epoch": 0, "seq": 0, "cause": ""}
        return msgspec.json.encode({**facts, "kind": "lost", "files": files, "why": "rotated away unpublished"})

    async def _produce_lines(self, lines: list[bytes]) -> None:
        """Produce the lines to the topic. Raises KlammError where they were not written."""
        key = str(self._node).encode()
        records = [NewRecord(value=line, key=key, timestamp=_timestamp(line)) for line in lines]
        batch = build_batch(records, Codec.ZSTD)
        request = produce_request(TopicPartition(self._topic, 0), batch, PRODUCE_TIMEOUT_S)
        answer = await self._client.ask(await self._find_leader(), request, 2 * PRODUCE_TIMEOUT_S)
        error = ErrorCode(produce_error_code(answer))
        if error is ErrorCode.MESSAGE_TOO_LARGE:
            await self._produce_halves(lines)
        elif error is not ErrorCode.NONE:
            raise TopicUnavailable(f"the leader of {self._topic}-0 refused the journal lines with {error.name}")
        else:
            self._batch_bytes = min(BATCH_BYTES, 2 * self._batch_bytes)

    async def _produce_halves(self, lines: list[bytes]) -> None:
        """Produce a batch that was too large as two halves.

        A single line beyond `max.message.bytes` is left out of the topic; only the journal files have it.
        """
        self._batch_bytes = max(1, self._batch_bytes // 2)
        if len(lines) == 1:
            log.warning(
                "a journal line is too large for the journal topic: only the journal file has it",
                topic=self._topic,
                bytes=len(lines[0]),
                action="Raise max.message.bytes of the topic.",
            )
            return
        half = len(lines) // 2
        await self._produce_lines(lines[:half])
        await self._produce_lines(lines[half:])

    async def _find_leader(self) -> Address:
        """Return the address of the topic's leader; a missing topic is created. Raises TopicUnavailable."""
        state = self._metadata.state(TopicPartition(self._topic, 0))
        if state is None:
            await self._create_topic()
            raise TopicUnavailable(f"the journal topic {self._topic} is being created")
        address = self._metadata.endpoint(state.leader)
        if address is None:
            raise TopicUnavailable(f"{self._topic}-0, the partition of the journal topic, has no leader")
        leader = Address(*address)
        if self._leader is not None and self._leader != leader:
            self._client.drop(self._leader)
        self._leader = leader
        return leader

    async def _create_topic(self) -> None:
        """Ask the controller to create the topic, unless it exists. Raises TopicUnavailable."""
        if self._metadata.has_topic(self._topic):
            return
        copies = min(_MAX_REPLICATION_FACTOR, max(1, len(self._metadata.brokers)))
        wanted = CreatableTopic(name=self._topic, num_partitions=1, replication_factor=copies)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=int(PRODUCE_TIMEOUT_S * 1000))
        answer = await self._ask_controller(ApiKey.CREATE_TOPICS, ANY, lambda version: request)
        error = ErrorCode(answer.topics[0].error_code)
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise TopicUnavailable(f"the journal topic {self._topic} cannot be created: {error.name}")


def _timestamp(line: bytes) -> int:
    """The time of a journal line in ms; 0 if it cannot be decoded."""
    try:
        return msgspec.json.decode(line, type=_Line).ts_ms
    except msgspec.DecodeError:
        return 0
