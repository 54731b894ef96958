"""A real ZooKeeper, recorder brokers and the node under test; begins, completes and records steps."""

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.differential import normalize
from tests.differential.nodes import NodeUnderTest, StartNode
from tests.differential.recorder import SHORT_SESSION_MS, Recorder
from tests.differential.session_end import end_session
from tests.differential.transaction_log import TransactionLog, Write

from klamm.client.connection import Connection
from klamm.embedded.nodes import HOST
from klamm.embedded.zookeeper import ZooKeeperServer
from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.runtime.world import real_world
from klamm.wire.api import ApiKey
from klamm.zk import znodes
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import NoNode
from klamm.zk.jute import Stat
from klamm.zk.store import Store

NODE_ID = 100
REST_TIMEOUT_S = 60.0
POLL_S = 0.005
HARMLESS = ("NODE_EXISTS", "NO_NODE")
"""To create what is there, to delete what is gone: whether somebody looks before is a matter of taste."""


@dataclass
class Step:
    """What one verb led to, as texts."""

    did: str
    answer: Any = None
    tree: dict[str, str | None] = field(default_factory=dict)
    """Paths that changed: content, version and owner; None where the znode is gone."""
    writes: dict[str, list[str]] = field(default_factory=dict)
    """By path, what the node under test wrote, in order."""
    order: dict[str, list[str]] = field(default_factory=dict)
    """By topic: in which order the node wrote to different places."""
    refused: list[str] = field(default_factory=list)
    """What the node tried to write in vain: why, in alphabetical order."""
    requests: dict[str, normalize.ReceivedRequests] = field(default_factory=dict)
    """By broker and partition."""

    def as_data(self) -> dict[str, Any]:
        """The step as plain data, without empty parts."""
        return {name: v for name, v in asdict(self).items() if v or (name == "answer" and v is not None)}


class Testbed:
    """A chroot of its own on a real ZooKeeper, recorder brokers, and one node whose controller they hear."""

    def __init__(
        self,
        server: ZooKeeperServer,
        chroot: str,
        directory: Path,
        start_node: StartNode,
        protocol: str,
        given: Mapping[str, str],
    ) -> None:
        self.steps: list[Step] = []
        self.brokers: dict[int, Recorder] = {}
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.nodes: dict[int, NodeUnderTest] = {}
        """By broker id, those under test that run."""
        self.client = ZooKeeper(real_world(), server.connect_string + chroot, 30_000)
        self._server = server
        self._chroot = chroot
        self._hosts = server.connect_string + chroot
        self._start_node = partial(start_node, self._hosts, directory, protocol, given)
        self._recorders: dict[Recorder, int] = {}
        self._roles: dict[int, str] = {}
        """By session; one that is not known is the node's."""
        self._node_sessions: set[int] = set()
        self._tree: dict[str, str] = {}
        self._log = TransactionLog(server.directory, chroot)
        self._written: list[Write] = []

    # ---- opening and closing

    async def open(self, brokers: Sequence[int]) -> None:
        """Connect to ZooKeeper and start the recorder brokers."""
        await self.client.connect(60)
        self._roles[self.client.session_id] = "script"
        await Store(self.client).create_top_level_paths()
        for number in brokers:
            await self.start_broker(number)

    async def close(self) -> None:
        for node in self.nodes.values():
            await node.stop()
        for recorder in self._recorders:
            if recorder.zookeeper is not None:
                await recorder.die()
        await self.client.close()

    # ---- what verbs are made of

    async def start_broker(self, number: int, short_session: bool = False) -> None:
        """Start a recorder broker."""
        recorder = Recorder(number, self._hosts, *((SHORT_SESSION_MS,) if short_session else ()))
        await recorder.start()
        self.brokers[number] = recorder
        self._recorders[recorder] = 0
        self.remember_session(recorder)

    def remember_session(self, recorder: Recorder) -> None:
        """Name the recorder's ZooKeeper session in the recorded writes."""
        self._roles[recorder.session] = f"broker {recorder.number}"

    async def start_node(self, number: int = NODE_ID) -> None:
        """Start the node under test."""
        for tries_left in (2, 1, 0):
            try:
                self.nodes[number] = await self._start_node(number)
                break
            except KlammError:  # once in some hundred plays, somebody else has just taken its port
                if not tries_left:
                    raise
        await self._remember_node_session(number)

    async def _remember_node_session(self, number: int) -> None:
        """Name the node's ZooKeeper session in the recorded writes."""
        session_id, _ = await self.nodes[number].session()
        self._node_sessions.add(session_id)
        if number != NODE_ID:
            self._roles[session_id] = f"node {number}"

    async def expire_session(self, node: int) -> None:
        """Somebody else closes its ZooKeeper session, as its expiry would; returns once it has registered anew.

        If it was controller and there is another node, it hears of the expiry once the other one is controller.
        """
        session_id, password = await self.nodes[node].session()
        path = znodes.broker_path(node)

        def is_of_another(stat: Stat | None) -> bool:
            return stat is not None and stat.ephemeral_owner != session_id

        claim = await self.client.exists(znodes.CONTROLLER)
        yields = claim is not None and claim.ephemeral_owner == session_id and len(self.nodes) > 1
        self.nodes[node].hear_nothing()
        while (stat := await self.client.exists(path)) is not None and stat.ephemeral_owner == session_id:
            await end_session(self._server.port, session_id, password)
        if yields:
            await self.wait_until(
                lambda stat: stat is not None and stat.ephemeral_owner != session_id, znodes.CONTROLLER
            )
        await self.nodes[node].session_ended(session_id)
        await self.wait_until(lambda stat: stat is not None and stat.ephemeral_owner != session_id, path)
        await self._remember_node_session(node)

    async def wait_until(self, is_so: Callable[[Any], bool], path: str) -> None:
        """Wait until the condition holds for the znode's stat, which is None if there is no znode."""
        for _ in range(round(REST_TIMEOUT_S / POLL_S)):
            if is_so(await self.client.exists(path)):
                return
            await asyncio.sleep(POLL_S)
        raise KlammError(f"{path} is not as it should be after {REST_TIMEOUT_S:g} s")

    def broker_epoch(self, broker: int, is_stale: bool) -> int:
        """The current epoch of the broker, or an older one."""
        recorder = self.brokers.get(broker)
        return 0 if recorder is None else recorder.epoch - is_stale

    def topic_id(self, name: str) -> uuid.UUID:
        """The topic's id; an unused id if there was no such topic."""
        return self.topic_ids.get(name, uuid.uuid5(uuid.NAMESPACE_DNS, name))

    async def state(self, topic: str, partition: int) -> LeaderAndIsr | None:
        """The partition's state in ZooKeeper; reading it is no step."""
        named = TopicPartition(topic, partition)
        try:
            data, stat = await self.client.get(znodes.state_path(named))
        except NoNode:
            return None
        return znodes.decode_state(named, data, stat.version)

    async def ask(self, api_key: ApiKey, version: int, message: Any, node: int = NODE_ID) -> Any:
        """Send a request to the node under test."""
        connection = await Connection.open(real_world(), HOST, self.nodes[node].port, "script", REST_TIMEOUT_S)
        try:
            return await connection.request(api_key, version, message, REST_TIMEOUT_S)
        finally:
            connection.close()

    # ---- the end of a step

    async def end_step(self, did: str, answer: Any = None) -> None:
        """Wait until the node is at rest, and record the step."""
        deadline = asyncio.get_running_loop().time() + REST_TIMEOUT_S
        before = None
        while (now := await self._activity(did, deadline)) != before:
            before = now
        step = Step(did, answer)
        self.steps.append(step)
        await self._see_tree(step)
        self._see_writes(step)
        self.collect_requests()

    async def _activity(self, did: str, deadline: float) -> tuple[int, int]:
        """Once every node is at rest: the number of transactions and requests so far."""
        for node in self.nodes.values():
            while why_busy := await node.why_busy([n for n, recorder in self.brokers.items() if recorder.is_holding]):
                if asyncio.get_running_loop().time() > deadline:
                    raise KlammError(f"{did}: not at rest after {REST_TIMEOUT_S:g} s: {why_busy}")
        self._written += [w for w in self._log.read() if self._is_of_this_test(w)]
        return len(self._written), sum(len(r.received) for r in self._recorders)

    def _is_of_this_test(self, write: Write) -> bool:
        """Whether the write belongs to this test; of a refused write only the session is known."""
        if not write.path:
            return write.session in self._node_sessions
        return f"{write.path}/".startswith(f"{self._chroot}/")

    async def _see_tree(self, step: Step) -> None:
        """Add the changed znodes to the step."""
        changed = sorted({w.path.removeprefix(self._chroot) or "/" for w in self._written if w.path})
        for path, node in zip(changed, await self.client.get_many(changed), strict=True):
            if node.stat is not None:
                self._learn_topic_id(path, node.data)
            seen = self._znode_text(path, node)
            if seen != self._tree.get(path):
                step.tree[path] = seen
            self._tree.pop(path, None)
            if seen is not None:
                self._tree[path] = seen

    def _znode_text(self, path: str, node: Any) -> str | None:
        """The content of a znode as comparable text."""
        if node.stat is None:
            return None
        owner = self._roles.get(node.stat.ephemeral_owner, "the node") if node.stat.ephemeral_owner else ""
        return f"{normalize.znode_content(path, node.data)} v{node.stat.version}{owner and f' of {owner}'}"

    async def check_tree(self) -> None:
        """Read the whole tree to check that no change was overlooked. Raises AssertionError."""
        tree: dict[str, str | None] = {}
        paths = ["/"]
        while paths:
            found = await self.client.get_many(paths)
            listed = await self.client.children_many(paths)
            tree |= {path: self._znode_text(path, node) for path, node in zip(paths, found, strict=True)}
            paths = [
                f"{path.rstrip('/')}/{child}"
                for path, children in zip(paths, listed, strict=True)
                for child in children.children or ()
            ]
        tree.pop("/")
        self._tree.pop("/", None)
        assert tree == self._tree, set(tree.items()) ^ set(self._tree.items())

    def _learn_topic_id(self, path: str, data: bytes | None) -> None:
        """Remember the topic id in a topic znode."""
        parent, _, topic = path.rpartition("/")
        if parent == znodes.TOPICS and data:
            try:
                topic_id = znodes.decode_topic(topic, data).topic_id
            except KlammError:
                return
            if topic_id is not None:
                self.topic_ids[topic] = topic_id

    def _see_writes(self, step: Step) -> None:
        """Add the ZooKeeper writes to the step, in order."""
        by_node = [w for w in self._written if w.session in self._node_sessions or w.session not in self._roles]
        self._written = []
        places: list[tuple[str, str]] = []
        for write in by_node:
            if write.kind == "refused":
                why = (write.data or b"").decode()
                if not why.startswith(HARMLESS):
                    step.refused.append(why)
                continue
            path = write.path.removeprefix(self._chroot) or "/"
            text = write.kind if write.kind == "delete" else f"{write.kind} {normalize.znode_content(path, write.data)}"
            step.writes.setdefault(path, []).append(text)
            places.append((path, write.kind))
        step.writes = dict(sorted(step.writes.items()))
        step.refused.sort()
        step.order = normalize.write_order(places)

    def collect_requests(self) -> None:
        """Add to the newest step what the brokers heard since."""
        for recorder, heard in self._recorders.items():
            received = normalize.received_requests(recorder.received[heard:], recorder.epoch, self.topic_ids)
            self._recorders[recorder] = len(recorder.received)
            if received and self.steps:
                self.steps[-1].requests[str(recorder.number)] = received
