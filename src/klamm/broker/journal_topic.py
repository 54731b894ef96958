"""The journal as a topic: what this node's journal files tell is also produced to one partition that all nodes share.

The files come first and are the spool: while the topic cannot be reached nothing is lost until they rotate, and then
the topic is told how much. Lines arrive at least once, in this node's order; `node`, the incarnation in `cause` and
`seq` tell repetitions apart, `controller_epoch` and `seq` order the lines of all nodes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from posixpath import join
from typing import Any, Final, Protocol

import msgspec
import structlog

from klamm.client.connection import Connection
from klamm.client.producing import produce_request, produced_code
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.world import World
from klamm.telemetry.journal_tail import Position, Tailed, read_on
from klamm.wire.api import ApiKey
from klamm.wire.compression import Codec
from klamm.wire.messages import (
    CreatableTopic,
    CreateTopicsRequest,
)
from klamm.wire.records import NewRecord, build_batch

BATCH_BYTES: Final = 256 * 1024
"""Of lines, before compression; less where the topic takes less."""
LOOK_S: Final = 0.5
RETRY_S: Final = 1.0
_ACKNOWLEDGE_S: Final = 30.0
_PRODUCE_VERSION: Final = 8  # every broker since 2.4 takes it
_CREATE_TOPICS_VERSION: Final = 4
_MOST_COPIES: Final = 3
log = structlog.get_logger("journal-topic")

Connect = Callable[[str, int, str, float], Awaitable[Connection]]
AskController = Callable[[ApiKey, int, Callable[[int], Any]], Awaitable[Any]]


class Metadata(Protocol):
    """What it needs of the metadata cache."""

    @property
    def brokers(self) -> Any: ...
    def has_topic(self, topic: str) -> bool: ...
    def state(self, topic_partition: TopicPartition) -> Any: ...
    def endpoint(self, broker_id: BrokerId) -> tuple[str, int] | None: ...


class _Line(msgspec.Struct):
    ts_ms: int = 0


class NotTaken(KlammError):
    """The topic did not take a batch now; it may, later."""


class JournalTopic:
    """`start()` it when the node serves, `close()` it before the ports do. Never waits in anybody's way."""

    def __init__(
        self,
        world: World,
        directory: str,
        node: BrokerId,
        topic: str,
        metadata: Metadata,
        connect: Connect,
        ask_controller: AskController,
    ) -> None:
        self._world = world
        self._directory = directory
        self._node = node
        self._topic = topic
        self._metadata = metadata
        self._connect = connect
        self._ask_controller = ask_controller
        self._path = join(directory, f"klamm-journal-{node}.published")
        self._batch_bytes = BATCH_BYTES
        self._connection: tuple[tuple[str, int], Connection] | None = None
        self._task: asyncio.Task[None] | None = None
        self.lost_files = 0
        """Rotated away before the topic could take them."""
        self.is_waiting = False
        """Whether the topic did not take the last lines it was given."""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="journal-topic")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            self._connection[1].close()

    async def _run(self) -> None:
        position = self._position()
        while True:
            try:
                tailed = await self._world.disk.in_thread(self._read_on, position)
                if tailed.lost_files:
                    self.lost_files += tailed.lost_files
                    tailed.lines.insert(0, self._notice(tailed.lost_files))
                if not tailed.lines:
                    await asyncio.sleep(LOOK_S)
                    continue
                await self._produce(tailed.lines)
                self.is_waiting = False
                position = tailed.position
                await self._world.disk.in_thread(self._world.disk.write_atomically, self._path, position.encode())
            except (KlammError, OSError) as error:
                self.is_waiting = True
                log.debug("journal lines wait", topic=self._topic, reason=str(error))
                await asyncio.sleep(RETRY_S)
            except Exception as error:  # a mistake, ours or in an answer: the lines wait, and must not wait for ever
                self.is_waiting = True
                log.error("journal lines wait", topic=self._topic, reason=repr(error))
                await asyncio.sleep(RETRY_S)

    def _position(self) -> Position:
        try:
            return Position.decode(self._world.disk.read(self._path))
        except OSError:
            return Position()

    def _read_on(self, position: Position) -> Tailed:
        return read_on(self._world.disk, self._directory, self._node, position, self._batch_bytes)

    def _notice(self, files: int) -> bytes:
        """In the place of what nobody can read any more."""
        facts = {"ts_ms": self._world.clock.now_ms(), "node": self._node, "controller_epoch": 0, "seq": 0, "cause": ""}
        return msgspec.json.encode({**facts, "kind": "lost", "files": files, "why": "rotated away before it was told"})

    async def _produce(self, lines: list[bytes]) -> None:
        """Raises KlammError where the topic does not take them now."""
        key = str(self._node).encode()
        records = [NewRecord(value=line, key=key, timestamp=_timestamp(line)) for line in lines]
        batch = build_batch(records, Codec.ZSTD)
        request = produce_request(TopicPartition(self._topic, 0), batch, _ACKNOWLEDGE_S)
        connection = await self._leader()
        answer = await connection.request(ApiKey.PRODUCE, _PRODUCE_VERSION, request.message, 2 * _ACKNOWLEDGE_S)
        error = ErrorCode(produced_code(answer))
        if error is ErrorCode.MESSAGE_TOO_LARGE:
            await self._produce_smaller(lines)
        elif error is not ErrorCode.NONE:
            raise NotTaken(f"{self._topic} answers {error.name}")
        else:
            self._batch_bytes = min(BATCH_BYTES, 2 * self._batch_bytes)

    async def _produce_smaller(self, lines: list[bytes]) -> None:
        """In halves; a single line beyond `max.message.bytes` is left out, the files still have it."""
        self._batch_bytes = max(1, self._batch_bytes // 2)
        if len(lines) == 1:
            log.warning("journal line left out of the topic: too large", topic=self._topic, bytes=len(lines[0]))
            return
        half = len(lines) // 2
        await self._produce(lines[:half])
        await self._produce(lines[half:])

    async def _leader(self) -> Connection:
        state = self._metadata.state(TopicPartition(self._topic, 0))
        if state is None:
            await self._create()
            raise NotTaken(f"{self._topic} is being created")
        address = self._metadata.endpoint(state.leader)
        if address is None:
            raise NotTaken(f"{self._topic} has no leader")
        if self._connection is not None and (self._connection[0] != address or self._connection[1].closed):
            self._connection[1].close()
            self._connection = None
        if self._connection is None:
            self._connection = address, await self._connect(*address, f"klamm-journal-{self._node}", _ACKNOWLEDGE_S)
        return self._connection[1]

    async def _create(self) -> None:
        if self._metadata.has_topic(self._topic):
            return
        copies = min(_MOST_COPIES, max(1, len(self._metadata.brokers)))
        wanted = CreatableTopic(name=self._topic, num_partitions=1, replication_factor=copies)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=int(_ACKNOWLEDGE_S * 1000))
        answer = await self._ask_controller(ApiKey.CREATE_TOPICS, _CREATE_TOPICS_VERSION, lambda version: request)
        error = ErrorCode(answer.topics[0].error_code)
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise NotTaken(f"{self._topic} cannot be created: {error.name}")


def _timestamp(line: bytes) -> int:
    try:
        return msgspec.json.decode(line, type=_Line).ts_ms
    except msgspec.DecodeError:
        return 0
