"""A network of namespaces for a campaign: one for each node, for ZooKeeper and for the campaign with its clients.

    network = Network()         # this process, its later threads and children are in a namespace now
    machine = network.join("node-1")
    network.cut({"node-1"}, {"node-2", "zookeeper"})
    network.heal()

A veth pair joins each namespace to a bridge in another namespace. The bridge drops packets from one member to another,
all of them or a share, and tells nobody: connections hang as they do behind a broken switch, and TCP sends again.
Namespaces have no names. The kernel removes them, with links and addresses, when the last process in them has ended,
also after SIGKILL. The network of the machine is never changed.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Collection, Sequence
from itertools import product
from typing import Final

from tests.support.cluster import Cluster

from klamm.embedded.machine import Machine

CAMPAIGN: Final = "campaign"
"""The member of the campaign itself, with all clients."""
ZOOKEEPER: Final = "zookeeper"
ALL: Final = 1.0
_NETWORK: Final = "10.77.0."
_CLONE_NEWNET: Final = 0x40000000
_PROGRAMS: Final = ("ip", "tc", "nsenter")
_MATCH, _NO_MATCH = 0xFFFFFFFF, 0
_RANDOM: Final = 0xFFFFF000 + 56  # the address at which a packet filter reads a random number (SKF_AD_RANDOM)
_SOURCE_ADDRESS: Final = 14 + 12  # behind the header of Ethernet


class NoNetwork(Exception):
    """Why there can be no namespaces here, and what to do."""


class Network:
    """Members that reach each other through a bridge, until `cut` or `lose` says otherwise."""

    def __init__(self) -> None:
        """Move this process into a new namespace, as a member of a new network. Raises NoNetwork.

        It has to be called before the process starts threads: they would stay where they are.
        """
        if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
            raise NoNetwork(f"Cannot make network namespaces: {', '.join(missing)} not found. Install iproute2 and "
                            "util-linux, or run without --namespaces.")  # fmt: skip
        if threading.active_count() > 1:
            raise NoNetwork("Cannot make network namespaces: threads run already. Create the Network first.")
        self._bridge = _new_namespace()
        self._addresses: dict[str, str] = {}
        self._machines: dict[str, Machine] = {}
        self._impaired: set[str] = set()
        _unshare()
        self._inside("ip", "link", "add", "bridge", "type", "bridge")
        self._inside("ip", "link", "set", "bridge", "up")
        self._connect(CAMPAIGN, ())

    def join(self, name: str) -> Machine:
        """The machine of a member's processes; a new member gets a namespace, which is joined to the bridge."""
        if name not in self._machines:
            launcher = _enter(_new_namespace())
            self._connect(name, launcher)
            self._machines[name] = Machine(self._addresses[name], launcher)
        return self._machines[name]

    @property
    def is_whole(self) -> bool:
        """Whether no packet is dropped."""
        return not self._impaired

    def cut(self, some: Collection[str], others: Collection[str]) -> None:
        """Drop all packets between each of some members and each of others, in both directions."""
        for one, other in product(some, others):
            self.lose(one, other)
            self.lose(other, one)

    def lose(self, source: str, target: str, share: float = ALL) -> None:
        """Drop this share of the packets that go from one member to another, drawn by chance for each."""
        if target not in self._impaired:
            self._impaired.add(target)
            self._shape(target, "qdisc", "add", "root", "handle", "1:", "htb")
            # a queue that holds one byte drops every packet
            self._shape(target, "class", "add", "parent", "1:", "classid", "1:2", "htb", "rate", "1gbit")
            self._shape(target, "qdisc", "add", "parent", "1:2", "bfifo", "limit", "1")
        program = packet_filter(self._addresses[source], share)
        words = ("parent", "1:", "protocol", "ip", "bpf", "bytecode", program, "classid", "1:2")
        self._shape(target, "filter", "add", *words)

    def heal(self) -> None:
        """Drop no more packets."""
        for name in sorted(self._impaired):
            self._shape(name, "qdisc", "del", "root")
            self._impaired.discard(name)

    def _connect(self, name: str, launcher: Sequence[str]) -> None:
        """Join the namespace that `launcher` enters, or this one, to the bridge."""
        address = self._addresses[name] = f"{_NETWORK}{len(self._addresses) + 1}"
        path = self._bridge
        _run(*launcher, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", name, "netns", path)
        _run(*launcher, "ip", "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run(*launcher, "ip", "link", "set", device, "up")
        self._inside("ip", "link", "set", name, "master", "bridge")
        self._inside("ip", "link", "set", name, "up")

    def _shape(self, target: str, what: str, action: str, *words: str) -> None:
        """Change how the bridge sends packets to a member."""
        self._inside("tc", what, action, "dev", target, *words)

    def _inside(self, *command: str) -> None:
        """Run a command in the namespace of the bridge."""
        _run(*_enter(self._bridge), *command)


def packet_filter(source: str, share: float) -> str:
    """The program for `tc filter ... bpf bytecode` that matches this share of the packets from an IPv4 address."""
    number = int.from_bytes(bytes(map(int, source.split("."))))
    program = [
        (0x20, 0, 0, _SOURCE_ADDRESS),  # load the source address
        (0x15, 0, 3, number),  # unless it is this one: no match
        (0x20, 0, 0, _RANDOM),
        (0x35, 1, 0, min(0xFFFFFFFF, int(share * 2**32))),  # where the random number is as large: no match
        (0x06, 0, 0, _MATCH),
        (0x06, 0, 0, _NO_MATCH),
    ]
    return ",".join([str(len(program)), *(" ".join(map(str, step)) for step in program)])


def network_or_exit() -> Network:
    """A new network with this process in it; where there can be none, the process ends and says why."""
    try:
        return Network()
    except NoNetwork as error:
        sys.exit(str(error))


def place(cluster: Cluster, network: Network) -> None:
    """Let ZooKeeper and each node of a cluster that is not started yet run on machines of their own."""
    zookeeper = cluster.zookeeper
    before = zookeeper.connect_string
    zookeeper.machine = network.join(ZOOKEEPER)
    for node in cluster.nodes:
        node.machine = network.join(member(node.broker_id))
        node.properties["listeners"] = f"PLAINTEXT://{node.address}"
        connect = node.properties["zookeeper.connect"]
        node.properties["zookeeper.connect"] = connect.replace(before, zookeeper.connect_string)


def member(broker_id: int) -> str:
    """The name of a node among the members."""
    return f"node-{broker_id}"


def _new_namespace() -> str:
    """The path of a new network namespace, which lives as long as this process or one inside it. Raises NoNetwork."""
    opened: list[int] = []
    failures: list[NoNetwork] = []

    def make() -> None:
        """Leave the namespace of the process with this thread alone, and open the new one."""
        try:
            _unshare()
            opened.append(os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY))
        except NoNetwork as error:
            failures.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return f"/proc/{os.getpid()}/fd/{opened[0]}"


def _unshare() -> None:
    """Move this thread into a new network namespace. Raises NoNetwork."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        why = os.strerror(ctypes.get_errno())
        raise NoNetwork(f"Cannot make a network namespace: {why}. Run as root (CAP_SYS_ADMIN and CAP_NET_ADMIN), or "
                        "run without --namespaces.")  # fmt: skip


def _enter(namespace: str) -> tuple[str, ...]:
    """The words that run a command in a namespace."""
    return ("nsenter", f"--net={namespace}")


def _run(*command: str) -> None:
    """Run a command to its end. Raises NoNetwork with what it says where it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        remedy = "It needs root, and a kernel with veth, bridge, sch_htb, sch_fifo, cls_bpf; or omit --namespaces."
        raise NoNetwork(f"Cannot change the campaign's network: {' '.join(command)}: {said}. {remedy}")
