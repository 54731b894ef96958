"""How long the controller takes for what Kafka's takes seconds for: failover, a dead broker, all brokers back at once.

    python benchmarks/controller.py [--partitions 10000 100000] [--profile failover]

One real ZooKeeper, six silent brokers in a process of their own that answer every control request at once, three
replicas, 100 partitions a topic, states written beforehand. Each broker leads one sixth and holds half of all. Prints
milliseconds, and how long the event loop was held at a stretch.
"""

import argparse
import asyncio
import cProfile
import multiprocessing
import pstats
import resource
import struct
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection as Pipe

from klamm.cli.zookeeper import ServerOptions, ZooKeeperServer
from klamm.controller.controller import Controller
from klamm.controller.settings import ControllerSettings
from klamm.model.assignment import ReplicaAssignment
from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.net.client import Connection
from klamm.runtime.ports import free_port
from klamm.runtime.world import RealDisk, real_world
from klamm.telemetry.journal import Journal
from klamm.telemetry.journal_files import JournalFiles
from klamm.wire.api import api
from klamm.zk import znodes
from klamm.zk.client import ZooKeeper
from klamm.zk.operations import Create, Op
from klamm.zk.registrar import BrokerRegistrar
from klamm.zk.store import Store

BROKERS = (1, 2, 3, 4, 5, 6)
PER_TOPIC = 100
HEAVY = 6


# ---- silent brokers


class Silent(asyncio.Protocol):
    """Reads frames, answers each with an empty success; keeps when the last one came."""

    def __init__(self, seen: dict[str, float]) -> None:
        self._buffer = bytearray()
        self._seen = seen

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            (size,) = struct.unpack_from(">i", self._buffer)
            if len(self._buffer) < size + 4:
                return
            key, version, correlation = struct.unpack_from(">hhi", self._buffer, 4)
            del self._buffer[: size + 4]
            self._seen["last"] = time.time()
            self._seen["requests"] = self._seen.get("requests", 0) + 1
            body = api(key).response().encode(version)
            tail = b"\0" if api(key).response_header_version(version) else b""
            frame = struct.pack(">i", correlation) + tail + body
            self._transport.write(struct.pack(">i", len(frame)) + frame)  # type: ignore[attr-defined]


def silent_brokers(ports: list[int], pipe: Pipe) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        seen: dict[str, float] = {}
        for port in ports:
            await loop.create_server(lambda: Silent(seen), "127.0.0.1", port)
        pipe.send("ready")
        while True:
            if await asyncio.to_thread(pipe.poll, 3600) and pipe.recv() == "last":
                pipe.send(dict(seen))

    asyncio.run(serve())


# ---- the cluster


def assignments(count: int) -> Iterator[tuple[str, dict[int, tuple[int, ...]]]]:
    """Topics whose leaders are spread evenly; the heavy broker follows where it does not lead, half the time."""
    for first in range(0, count, PER_TOPIC):
        yield f"topic-{first // PER_TOPIC:05}", {n: _replicas(first + n) for n in range(min(PER_TOPIC, count - first))}


def _replicas(index: int) -> tuple[int, ...]:
    start = index % 6
    ring = [BROKERS[(start + i) % 6] for i in range(6)]
    return tuple(ring[:3])


async def write_cluster(client: ZooKeeper, count: int) -> None:
    store = Store(client)
    await store.create_top_level_paths()
    ops: list[Op] = []
    for topic, partitions in assignments(count):
        assignment = {n: ReplicaAssignment(tuple(map(BrokerId, r))) for n, r in partitions.items()}
        ops.append(Create(f"/config/topics/{topic}", b'{"version":1,"config":{}}'))
        ops.append(Create(znodes.topic_path(topic), znodes.encode_topic(uuid.uuid4(), assignment)))
        ops.append(Create(znodes.partitions_path(topic)))
        for n, a in assignment.items():
            at = TopicPartition(topic, n)
            state = LeaderAndIsr(a.replicas[0], 0, a.replicas, 0)
            ops += [Create(znodes.partition_path(at)), Create(znodes.state_path(at), znodes.encode_state(state))]
    for start in range(0, len(ops), 2_000):
        await client.multi(ops[start : start + 2_000])


class LoopWatch:
    """The longest time the loop was not free to do anything else."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - before - 0.001) * 1000)

    def take(self) -> float:
        longest, self.longest_ms = self.longest_ms, 0.0
        return longest

    def stop(self) -> None:
        self._task.cancel()


class Bench:
    def __init__(self, hosts: str, ports: list[int], pipe: Pipe, directory: str, profile: str) -> None:
        self.world = real_world()
        self.hosts = hosts
        self.ports = dict(zip(BROKERS, ports, strict=True))
        self.pipe = pipe
        self.directory = directory
        self.profile = profile
        self.sessions: dict[int, ZooKeeper] = {}

    async def register(self, number: int) -> None:
        client = self.sessions[number] = ZooKeeper(self.world, self.hosts, 30_000)
        await client.connect(10)
        endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", self.ports[number])
        await BrokerRegistrar(Broker(BrokerId(number), (endpoint,))).register(client, 0)

    def last_received(self) -> float:
        self.pipe.send("last")
        last: float = self.pipe.recv().get("last", 0.0)
        return last

    async def quiet(self, controller: Controller) -> float:
        """The time the last request was received, once nothing is under way any more."""
        last, still = 0.0, 0
        while still < 3:
            await asyncio.sleep(0.1)
            now = self.last_received()
            bench = controller.bench
            idle = bench is not None and bench.channels.waiting == 0 and controller.state == 0
            still = still + 1 if now == last and idle else 0
            last = now
        return last

    async def measure(self, name: str, act: Callable[[], Awaitable[None]], controller: Controller) -> None:
        watch = LoopWatch()
        profiler = cProfile.Profile() if self.profile == name else None
        if profiler:
            profiler.enable()
        began, used = time.time(), time.process_time()
        await act()
        last = await self.quiet(controller)
        used = time.process_time() - used
        if profiler:
            profiler.disable()
            pstats.Stats(profiler).sort_stats("tottime").print_stats(35)
        held = watch.take()
        watch.stop()
        took_ms = (last - began) * 1000
        print(f"  {name:<20} {took_ms:8.0f} ms  processor {used * 1000:7.0f} ms  loop held {held:6.1f} ms", flush=True)

    async def run(self, count: int) -> None:
        writer = ZooKeeper(self.world, self.hosts, 30_000)
        await writer.connect(10)
        began = time.time()
        await write_cluster(writer, count)
        print(f"{count} partitions (written in {time.time() - began:.1f} s)")
        for number in BROKERS:
            await self.register(number)
        client = ZooKeeper(self.world, self.hosts, 30_000)
        await client.connect(10)
        journal = Journal(JournalFiles(RealDisk(), self.directory, 1), 1, self.world.clock)
        controller = Controller(
            self.world, ControllerSettings(BrokerId(1)), partial(Connection.open, self.world), journal, self._nothing
        )
        client.on_watch = controller.on_watch

        async def take_office() -> None:
            controller.start(Store(client))

        async def lose_a_broker() -> None:
            await self.sessions.pop(HEAVY).close()

        async def lose_all() -> None:
            for number in list(self.sessions):
                await self.sessions.pop(number).close()

        async def all_return() -> None:
            for number in BROKERS:
                await self.register(number)

        await self.measure("failover", take_office, controller)
        await self.measure("a broker dies", lose_a_broker, controller)
        await self.measure("it returns", partial(self.register, HEAVY), controller)
        await self.measure("all die", lose_all, controller)
        await self.measure("all return", all_return, controller)
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"  most memory {rss} MiB, lines lost by the journal {journal.lost_lines}")
        await controller.stop()
        for session in (*self.sessions.values(), client, writer):
            await session.close()

    async def _nothing(self, store: Store) -> None:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--profile", default="", help="the step to profile")
    asked = parser.parse_args()
    for count in asked.partitions:
        with tempfile.TemporaryDirectory() as directory:
            options = ServerOptions(min_session_ms=4_000, heap_mb=1024, sync_to_disk=False)
            server = ZooKeeperServer(f"{directory}/zookeeper", free_port(), options)
            ports = [free_port() for _ in BROKERS]
            ours, theirs = multiprocessing.Pipe()
            brokers = multiprocessing.Process(target=silent_brokers, args=(ports, theirs), daemon=True)
            brokers.start()
            ours.recv()
            server.start()
            try:
                bench = Bench(server.connect_string, ports, ours, f"{directory}/journal", asked.profile)
                asyncio.run(bench.run(count))
            finally:
                server.kill()
                brokers.terminate()


if __name__ == "__main__":
    main()
