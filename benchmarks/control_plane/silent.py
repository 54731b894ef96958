"""Brokers that answer every control request at once and do nothing else: what is measured is the controller.

They keep the LeaderAndIsr requests, and read them only when they are asked since when the partitions have a leader.
"""

import asyncio
import multiprocessing
import struct
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection as Pipe
from typing import Any, Final, NamedTuple, Self, TypeAlias

from klamm.runtime.ports import free_ports
from klamm.wire.api import ApiKey, api
from klamm.wire.frames import decode_request_header, encode_response
from klamm.wire.messages import LeaderAndIsrRequest, StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse

HEADER_AT: Final = 4
"""Behind the frame's size."""
LEADER_AND_ISR: Final = ApiKey.LEADER_AND_ISR.to_bytes(2, "big")
"""The first bytes of a header."""

Key: TypeAlias = tuple[str, int]
"""Topic and number of a partition."""


@dataclass(slots=True)
class Seen:
    """What the silent brokers have received."""

    last_s: float = 0.0
    requests: int = 0
    received_bytes: int = 0


class SilentBrokers:
    """One process that serves one port for each broker."""

    def __init__(self, count: int) -> None:
        self.ports = free_ports(count)
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=_serve, args=(self.ports, theirs), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self._pipe.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()

    def forget_leaders(self) -> None:
        """Forget the LeaderAndIsr requests that were received so far."""
        self._pipe.send("forget")
        self._pipe.recv()

    def led_since(self, partitions: Collection[Key] | None) -> list[float]:
        """For each of these partitions (None: all) whose leader got a LeaderAndIsr: when it got the first, in order."""
        self._pipe.send(partitions)
        times: list[float] = self._pipe.recv()
        return times

    def seen(self) -> Seen:
        """What the brokers have received so far."""
        self._pipe.send("seen")
        found: Seen = self._pipe.recv()
        return found


class Order(NamedTuple):
    """A LeaderAndIsr request that a broker received."""

    broker: int
    received_s: float
    frame: bytes


def led_since(orders: Iterable[Order], partitions: Collection[Key] | None) -> list[float]:
    """When the leader of each of these partitions got the first request that names it, in order of time."""
    first: dict[Key, float] = {}
    for order in orders:
        _, version, _ = struct.unpack_from(">hhi", order.frame, HEADER_AT)
        _, at = decode_request_header(order.frame[HEADER_AT:])
        request = LeaderAndIsrRequest.decode(order.frame, version, HEADER_AT + at)
        for topic in request.topic_states:
            for state in topic.partition_states:
                if state.leader == order.broker:
                    first.setdefault((topic.topic_name, state.partition_index), order.received_s)
    return sorted(at for key, at in first.items() if partitions is None or key in partitions)


class _Silent(asyncio.Protocol):
    """Answers each control request at once."""

    def __init__(self, broker: int, seen: Seen, orders: list[Order]) -> None:
        self._broker = broker
        self._buffer = bytearray()
        self._seen = seen
        self._orders = orders
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= HEADER_AT:
            (size,) = struct.unpack_from(">i", self._buffer)
            if len(self._buffer) < size + HEADER_AT:
                return
            frame = bytes(self._buffer[: size + HEADER_AT])
            del self._buffer[: size + HEADER_AT]
            self._seen.last_s = time.time()
            self._seen.requests += 1
            self._seen.received_bytes += len(frame)
            if frame[HEADER_AT : HEADER_AT + 2] == LEADER_AND_ISR:
                self._orders.append(Order(self._broker, self._seen.last_s, frame))
            self._transport.write(b"".join(_answer(frame)))


def _answer(frame: bytes) -> Sequence[bytes | memoryview]:
    """The response to a request frame."""
    key, version, correlation = struct.unpack_from(">hhi", frame, HEADER_AT)
    return encode_response(key, version, correlation, _response_body(frame, key, version))


def _response_body(frame: bytes, key: int, version: int) -> Any:
    """A response without errors. For StopReplica it names every partition: a controller waits for each."""
    if key != ApiKey.STOP_REPLICA:
        return api(key).response()
    _, at = decode_request_header(frame[HEADER_AT:])
    request = StopReplicaRequest.decode(frame, version, HEADER_AT + at)
    errors = [
        StopReplicaPartitionError(t.topic_name, s.partition_index)
        for t in request.topic_states
        for s in t.partition_states
    ]
    errors += [StopReplicaPartitionError(t.name, n) for t in request.topics for n in t.partition_indexes]
    return StopReplicaResponse(partition_errors=errors)


def _serve(ports: Sequence[int], pipe: Pipe) -> None:
    """The process that serves the ports until the pipe closes; the first port is that of broker 1."""

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        seen = Seen()
        orders: list[Order] = []

        def answer() -> None:
            """Answer one question of the benchmark."""
            match pipe.recv():
                case "seen":
                    pipe.send(seen)
                case "forget":
                    orders.clear()
                    pipe.send("forgotten")
                case partitions:
                    pipe.send(led_since(orders, partitions))

        for broker, port in enumerate(ports, 1):
            await loop.create_server(partial(_Silent, broker, seen, orders), "127.0.0.1", port)
        loop.add_reader(pipe.fileno(), answer)
        pipe.send("ready")
        await asyncio.Event().wait()

    asyncio.run(serve())
