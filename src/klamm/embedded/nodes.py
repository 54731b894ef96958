"""Nodes as child processes, each with a data directory."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from posixpath import abspath, join
from typing import Final

from klamm.embedded.machine import LOCAL, Machine
from klamm.model.errors import KlammError
from klamm.runtime.disk import Disk, RealDisk
from klamm.runtime.ports import is_listening
from klamm.runtime.processes import Child, python, spawn, ticks
from klamm.runtime.small_files import create_directory

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
HOST: Final = LOCAL.host

Command = Callable[[str], Sequence[str]]
"""From the path of a server.properties to the command line that starts the node."""


class NodeFailed(KlammError):
    pass


def klamm_node(properties_path: str) -> Sequence[str]:
    """The command that starts a klamm node."""
    return [python(), "-m", "klamm.broker", properties_path]


class NodeProcess:
    """One node as a process; a new start finds the data of the last one.

    `command` may be changed while the process does not run: the next start then is another program's, with the same
    configuration and data. So may `machine`, together with the addresses in `properties`.
    """

    def __init__(
        self,
        broker_id: int,
        port: int,
        directory: str,
        properties: Mapping[str, str],
        command: Command = klamm_node,
        disk: Disk | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.port = port
        self.machine: Machine = LOCAL
        self.directory = abspath(directory)
        self.properties = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": self.log_directory,
            **properties,
        }
        self.command = command
        self._disk = disk or RealDisk()
        self.child: Child | None = None

    @property
    def name(self) -> str:
        """The name for messages: `node <broker id>`."""
        return f"node {self.broker_id}"

    @property
    def address(self) -> str:
        """Host and port of the node's listener."""
        return f"{self.machine.host}:{self.port}"

    @property
    def log_directory(self) -> str:
        """The path of the node's only log directory (`log.dirs`)."""
        return join(self.directory, "logs")

    @property
    def journal_directory(self) -> str:
        """The path of the directory with the node's journal files, which is in its log directory."""
        return self.log_directory

    @property
    def properties_path(self) -> str:
        """The path of the node's `server.properties`."""
        return join(self.directory, "server.properties")

    @property
    def output_path(self) -> str:
        """The path of the file with standard output and standard error of the process."""
        return join(self.directory, "node.log")

    @property
    def is_running(self) -> bool:
        """Whether the node's process runs."""
        return self.child is not None and self.child.is_running

    @property
    def is_paused(self) -> bool:
        """Whether the node's process runs and is stopped by SIGSTOP."""
        return self.child is not None and self.child.is_running and self.child.is_paused

    @property
    def has_data(self) -> bool:
        """Whether the node has data from an earlier start."""
        return self._disk.exists(join(self.log_directory, "meta.properties"))

    def start(self) -> None:
        """Start the process without waiting. Raises NodeFailed when the port is in use."""
        assert not self.is_running, f"{self.name} is already running"
        if is_listening(self.machine.host, self.port):
            raise NodeFailed(
                f"Cannot start {self.name}: port {self.port} is in use. Stop the process that uses it, or change "
                "the port."
            )
        create_directory(self._disk, self.log_directory)
        lines = [f"{key}={value}" for key, value in self.properties.items()]
        self._disk.write_atomically(self.properties_path, "\n".join([*lines, ""]).encode())
        command = [*self.machine.launcher, *self.command(self.properties_path)]
        self.child = spawn(f"node-{self.broker_id}", command, self.output_path)

    def wait_until_listening(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the node's port accepts connections.

        Raises NodeFailed with the last lines of its log when it ends, or does not listen in time.
        """
        assert self.child is not None
        for _ in ticks(timeout_s):
            if is_listening(self.machine.host, self.port):
                return
            if not self.child.is_running:
                raise NodeFailed(self.exit_report())
        raise NodeFailed(
            f"{self.name} does not listen on {self.address} after {timeout_s:g} s. Last lines of {self.output_path}:\n"
            f"{self._log_tail()}"
        )

    def exit_report(self) -> str:
        """Describe how the process ended, with the last lines of its log."""
        status = self.child.exit_status if self.child else None
        return f"{self.name} ended with status {status}. Last lines of {self.output_path}:\n{self._log_tail()}"

    def _log_tail(self) -> str:
        """Return the last lines of the process's output; empty where it was never started."""
        return self.child.log_tail() if self.child else ""

    def terminate(self) -> None:
        """Send SIGTERM, which starts a controlled shutdown, without waiting."""
        if self.child is not None:
            self.child.resume()
            self.child.terminate()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the node by controlled shutdown; it is killed when it does not end in time."""
        if self.child is not None:
            self.child.stop(timeout_s)

    def restart(self) -> None:
        """Stop the node by controlled shutdown if it runs, start it, and wait until it listens. Raises NodeFailed."""
        self.stop()
        self.start()
        self.wait_until_listening()

    def kill(self) -> None:
        """Send SIGKILL to the process and wait until it has ended."""
        if self.child is not None:
            self.child.kill()

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open, requests are not answered."""
        if self.child is not None:
            self.child.pause()

    def resume(self) -> None:
        """Let a stopped process continue (SIGCONT)."""
        if self.child is not None:
            self.child.resume()


def stop_all(nodes: Iterable[NodeProcess], timeout_s: float = STOP_TIMEOUT_S) -> list[NodeProcess]:
    """Stop all nodes at once. Returns those that did not end in time and were killed."""
    running = [node for node in nodes if node.is_running]
    for node in running:
        node.terminate()
    for _ in ticks(timeout_s):
        if not any(node.is_running for node in running):
            return []
    killed = [node for node in running if node.is_running]
    for node in killed:
        node.kill()
    return killed


def local_properties(zookeeper_connect: str, node_count: int) -> dict[str, str]:
    """Configs that all nodes of a small cluster on one machine share."""
    copies = str(min(3, node_count))
    return {
        "zookeeper.connect": zookeeper_connect,
        "zookeeper.session.timeout.ms": "6000",
        "zookeeper.connection.timeout.ms": str(int(START_TIMEOUT_S * 1000)),
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": str(min(2, node_count)),
        "controlled.shutdown.retry.backoff.ms": "500",
        "group.initial.rebalance.delay.ms": "0",
    }


def make_nodes(
    directory: str,
    ports: Sequence[int],
    zookeeper_connect: str,
    overrides: Mapping[str, str] | None = None,
    command: Command = klamm_node,
    disk: Disk | None = None,
) -> list[NodeProcess]:
    """Create the objects of nodes that are not started yet, one for each port.

    Their ids are 1 and up, their data is in `node-ID` below `directory`.
    """
    properties = {**local_properties(zookeeper_connect, len(ports)), **(overrides or {})}
    return [
        NodeProcess(i, port, join(directory, f"node-{i}"), properties, command, disk)
        for i, port in enumerate(ports, start=1)
    ]
