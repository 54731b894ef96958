"""The controllers to measure: a klamm node or an Apache Kafka broker as a process, or a klamm node in this process."""

import asyncio
import cProfile
import pstats
import time
from collections.abc import Mapping
from typing import Final, Protocol
from urllib.request import urlopen

import psutil
from tests.support import apache_kafka

from benchmarks.control_plane.holds import Holds
from klamm.broker.node import Node, start_node
from klamm.config.node_config import parse_node_config
from klamm.embedded.nodes import Command, NodeProcess, klamm_node
from klamm.runtime.main_loop import freeze_startup_objects
from klamm.runtime.memory import keep_large_buffers
from klamm.runtime.ports import free_port
from klamm.runtime.world import real_world
from klamm.telemetry.logs import configure_logs

ID: Final = 100
START_TIMEOUT_S: Final = 120
KAFKA_JAVA: Final = (*apache_kafka.BROKER_JAVA, "-Xmx4G", "-Xms256M")


class Subject(Protocol):
    """A controller to measure."""

    name: str
    address: tuple[str, int]
    keeps_mirror: bool
    """Whether it keeps the cluster's state in memory while another broker is controller."""

    async def start(self) -> None: ...
    async def is_current(self) -> bool:
        """Whether it has everything in memory for its election."""
        ...

    async def stop(self) -> None: ...
    def cpu_s(self) -> float:
        """Processor seconds so far."""

    def most_memory_mib(self) -> float:
        """The peak memory in MiB."""

    def memory_mib(self) -> float:
        """The memory in MiB that is resident now."""
        ...

    def begin(self, step: str) -> None:
        """A step begins."""

    def held_ms(self) -> float | None:
        """Processor time of the longest pass of its event loop since `begin`; None if it cannot be measured."""
        ...


def _properties(port: int, directory: str, zookeeper: str) -> dict[str, str]:
    return {
        "broker.id": str(ID),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": f"{directory}/logs",
        "zookeeper.connect": zookeeper,
        "zookeeper.session.timeout.ms": "30000",
        "auto.leader.rebalance.enable": "false",
        "klamm.controller.standby": "true",
    }


class Process:
    """A node as a process of its own."""

    def __init__(self, name: str, command: Command, directory: str, zookeeper: str) -> None:
        self.name = name
        port = free_port()
        self.address = ("127.0.0.1", port)
        self.keeps_mirror = command is klamm_node
        self._metrics_port = free_port()
        properties: Mapping[str, str] = _properties(port, directory, zookeeper) | (
            {"klamm.metrics.port": str(self._metrics_port)} if self.keeps_mirror else {}
        )
        self._node = NodeProcess(ID, port, directory, properties, command)

    async def start(self) -> None:
        self._node.start()
        await asyncio.to_thread(self._node.wait_until_listening, START_TIMEOUT_S)

    async def stop(self) -> None:
        self._node.kill()

    async def is_current(self) -> bool:
        return b"\nklamm_controller_standby_current 1" in await asyncio.to_thread(self._metrics)

    def _metrics(self) -> bytes:
        with urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics") as response:
            return bytes(response.read())

    def _process(self) -> psutil.Process:
        assert self._node.child is not None
        return psutil.Process(self._node.child.pid)

    def cpu_s(self) -> float:
        times = self._process().cpu_times()
        return float(times.user + times.system)

    def most_memory_mib(self) -> float:
        return self._status_mib("VmHWM")

    def memory_mib(self) -> float:
        return self._status_mib("VmRSS")

    def _status_mib(self, name: str) -> float:
        """A line of the process's status that has kB."""
        with open(f"/proc/{self._process().pid}/status") as status:
            line = next(line for line in status if line.startswith(f"{name}:"))
        return int(line.split()[1]) / 1024

    def begin(self, step: str) -> None:
        """Nothing to do from outside."""

    def held_ms(self) -> float | None:
        """None: it cannot be measured from outside."""
        return None


def klamm(directory: str, zookeeper: str) -> Subject:
    """A klamm node as a process."""
    return Process("klamm", klamm_node, directory, zookeeper)


def kafka(directory: str, zookeeper: str) -> Subject:
    """An Apache Kafka broker as a process."""
    return Process("Apache Kafka", apache_kafka.broker(KAFKA_JAVA), directory, zookeeper)


class Inside:
    """A klamm node in this process and on this loop: it can be profiled, and one sees how long it holds the loop."""

    name = "klamm, inside"
    keeps_mirror = True

    def __init__(self, directory: str, zookeeper: str, holds: Holds, profiled: str = "") -> None:
        port = free_port()
        self.address = ("127.0.0.1", port)
        world = real_world()
        world.disk.make_directories(f"{directory}/logs")
        lines = [f"{key}={value}" for key, value in _properties(port, directory, zookeeper).items()]
        self._world = world
        self._config = parse_node_config("\n".join(lines).encode(), "server.properties")
        self._node: Node | None = None
        self._profiled = profiled
        self._profiler: cProfile.Profile | None = None
        self._holds = holds

    async def start(self) -> None:
        self._node = await start_node(self._world, self._config, configure_logs("warning"))
        freeze_startup_objects()
        keep_large_buffers()

    async def is_current(self) -> bool:
        assert self._node is not None
        standby = self._node.parts.controller.standby
        return standby is not None and standby.is_current

    async def stop(self) -> None:
        assert self._node is not None
        await self._node.stop()

    def cpu_s(self) -> float:
        return time.process_time()

    def most_memory_mib(self) -> float:
        return self.memory_mib()

    def memory_mib(self) -> float:
        return float(psutil.Process().memory_info().rss / 2**20)

    def begin(self, step: str) -> None:
        self._holds.begin(step)
        if step == self._profiled:
            self._profiler = cProfile.Profile()
            self._profiler.enable()

    def held_ms(self) -> float | None:
        if self._profiler is not None:
            self._profiler.disable()
            pstats.Stats(self._profiler).sort_stats("tottime").print_stats(40)
            self._profiler = None
        return self._holds.longest_s * 1000
