"""The verbs of a script: each does one thing to a cluster, waits until all is quiet, and notes what came of it."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.differential import said
from tests.differential.nodes import NodeUnderTest, StartNode
from tests.differential.recorder import SHORT_SESSION_MS, Recorder
from tests.differential.written import writes

from klamm.cli.cluster import HOST
from klamm.cli.zookeeper import ZooKeeperServer
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.net.client import Connection
from klamm.runtime.ports import ask
from klamm.runtime.world import real_world
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
    ControlledShutdownRequest,
)
from klamm.zk import znodes
from klamm.zk.admin_znodes import encode_config_change, encode_isr_change
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import NoNode
from klamm.zk.operations import Delete
from klamm.zk.registrations import encode_registration
from klamm.zk.store import Store

PATIENCE_S = 30.0
LOOK_S = 0.01


@dataclass
class Step:
    """What one verb led to, in texts: see `said`."""

    did: str
    answer: Any = None
    tree: dict[str, str | None] = field(default_factory=dict)
    """Paths that changed: content, version and owner; None where the znode is gone."""
    writes: dict[str, list[str]] = field(default_factory=dict)
    """By path, what the node under test wrote, in order."""
    requests: dict[str, said.Story] = field(default_factory=dict)
    """By broker and partition."""

    def as_data(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in ({}, None)}


class Stage:
    """A chroot of its own on a real ZooKeeper, recorder brokers, and one node whose controller they hear."""

    def __init__(
        self,
        server: ZooKeeperServer,
        chroot: str,
        directory: Path,
        start_node: StartNode,
        protocol: str,
    ) -> None:
        self.steps: list[Step] = []
        self.brokers: dict[int, Recorder] = {}
        self.topic_ids: dict[str, uuid.UUID] = {}
        self._server = server
        self._chroot = chroot
        self._hosts = server.connect_string + chroot
        self._directory = directory
        self._start_node = start_node
        self._protocol = protocol
        self._node: NodeUnderTest | None = None
        self._client = ZooKeeper(real_world(), self._hosts, 30_000)
        self._heard: dict[Recorder, int] = {}
        self._roles: dict[int, str] = {}
        self._tree: dict[str, str] = {}
        self._zxid = 0

    # ---- opening and closing

    async def open(self, brokers: Sequence[int]) -> None:
        await self._client.connect(10)
        self._roles[self._client.session_id] = "script"
        await Store(self._client).create_top_level_paths()
        for number in brokers:
            await self._birth(number)

    async def close(self) -> None:
        if self._node is not None:
            await self._node.stop()
        for recorder in self._heard:
            if recorder.zookeeper is not None:
                await recorder.die()
        await self._client.close()

    # ---- verbs: the controller

    async def start_controller(self) -> None:
        self._node = await self._start_node(self._hosts, self._directory, self._protocol)
        await self._settle("start the controller")

    async def delete_controller(self) -> None:
        """Its office is taken away; being the only candidate it takes it again."""
        await self._client.delete(znodes.CONTROLLER)
        await self._settle("delete /controller")

    async def usurp(self, broker: int) -> None:
        """Another broker takes the office, with an epoch of its own, and does nothing."""
        epoch, stat = await self._client.get(znodes.CONTROLLER_EPOCH)
        await self._client.set(znodes.CONTROLLER_EPOCH, str(int(epoch or b"0") + 1).encode(), stat.version)
        await self._client.set(znodes.CONTROLLER, znodes.encode_controller(BrokerId(broker), 0))
        await self._settle(f"broker {broker} takes the office")

    # ---- verbs: brokers

    async def start(self, *brokers: int, short_session: bool = False) -> None:
        for number in brokers:
            await self._birth(number, short_session)
        await self._settle(f"start {_words(brokers)}")

    async def kill(self, *brokers: int) -> None:
        """Their sessions are closed in order, one after the other."""
        for number in brokers:
            await self.brokers[number].die()
        await self._settle(f"kill {_words(brokers)}")

    async def kill_together(self, *brokers: int) -> None:
        """Their registrations go in one transaction: one event for the controller."""
        await self._client.multi([Delete(znodes.broker_path(number)) for number in brokers])
        for number in brokers:
            await self.brokers[number].die()
        await self._settle(f"kill {_words(brokers)} together")

    async def vanish(self, broker: int) -> None:
        """Its session is left to expire."""
        await self.brokers[broker].vanish()
        path = znodes.broker_path(broker)
        for _ in range(round(PATIENCE_S / LOOK_S)):
            if await self._client.exists(path) is None:
                break
            await asyncio.sleep(LOOK_S)
        await self._settle(f"{broker} vanishes")

    async def bounce(self, broker: int, others_die: Sequence[int] = ()) -> None:
        recorder = self.brokers[broker]
        await self._listen()
        await recorder.bounce(others_die)
        self._roles[recorder.session] = f"broker {broker}"
        for other in others_die:
            await self.brokers[other].die()
        await self._settle(f"bounce {broker}{f' while {_words(others_die)} die' if others_die else ''}")

    async def change_endpoints(self, broker: int, rack: str) -> None:
        """Its registration is written again, as if its listeners changed."""
        words = b'"version":5,"rack":"%b"' % rack.encode()
        await self.brokers[broker].change_registration(lambda was: was.replace(b'"version":5', words))
        await self._settle(f"{broker} registers anew, rack {rack}")

    async def older_registration(self, broker: int, version: int) -> None:
        """Its registration as brokers wrote it before features (4), listener names (3) and listeners (2)."""
        recorder = self.brokers[broker]
        content = encode_registration(recorder.broker, 0, version=version)
        await recorder.change_registration(lambda _: content)
        await self._settle(f"{broker} registers as version {version}")

    # ---- verbs: topics

    async def create_topic(
        self, name: str, assignment: Sequence[Sequence[int]], config: Mapping[str, str] | None = None
    ) -> None:
        self.topic_ids[name] = uuid.uuid5(uuid.NAMESPACE_DNS, name)
        await Store(self._client).create_topic(name, _assigned(assignment), self.topic_ids[name], config or {})
        await self._settle(f"create {name} {assignment}{f' with {dict(config)}' if config else ''}")

    async def create_topic_without_id(self, name: str, assignment: Sequence[Sequence[int]]) -> None:
        """As brokers before 2.8 did; whoever gives it an id, that is its id from then on."""
        await Store(self._client).create_topic(name, _assigned(assignment), None, {})
        await self._settle(f"create {name} {assignment} without an id")

    async def grow_topic(self, name: str, assignment: Sequence[Sequence[int]]) -> None:
        """`assignment` holds all its partitions, the old ones first."""
        content = znodes.encode_topic(self.topic_ids[name], _assigned(assignment))
        await self._client.set(znodes.topic_path(name), content)
        await self._settle(f"grow {name} to {assignment}")

    async def set_config(self, name: str, config: Mapping[str, str]) -> None:
        await Store(self._client).write_config("topics", name, config)
        await self._settle(f"configure {name}: {dict(config)}")

    async def notify_config(self, topic: str) -> None:
        path = f"{znodes.CONFIG_CHANGES}/config_change_"
        await self._client.create(path, encode_config_change(f"topics/{topic}"), sequential=True)
        await self._settle(f"notify of the configuration of {topic}")

    async def write(self, path: str, content: str | None) -> None:
        """Anything anywhere, whether it is there or not; None removes it with all below."""
        if content is None:
            await self._remove(path)
        elif await self._client.exists(path) is None:
            await self._client.ensure_path(path.rpartition("/")[0])
            await self._client.create(path, content.encode())
        else:
            await self._client.set(path, content.encode())
        await self._settle(f"write {path}: {content}")

    async def _remove(self, path: str) -> None:
        for child in (await self._client.children(path))[0]:
            await self._remove(f"{path}/{child}")
        await self._client.delete(path)

    async def notify(self, directory: str, content: str) -> None:
        """A notification whose content may be anything; its number is ZooKeeper's."""
        await self._client.create(directory, content.encode(), sequential=True)
        await self._settle(f"notify {directory}: {content}")

    async def write_state(
        self, topic: str, leader: int, isr: Sequence[int], leader_epoch: int, *, controller_epoch: int = 1
    ) -> None:
        """Behind the controller's back, as leaders before AlterPartition did."""
        state = LeaderAndIsr(BrokerId(leader), leader_epoch, tuple(map(BrokerId, isr)), controller_epoch)
        await self._client.set(znodes.state_path(TopicPartition(topic, 0)), znodes.encode_state(state))
        await self._settle(f"write the state of {topic}-0: {leader} / {isr} / {leader_epoch}")

    async def notify_isr(self, *topics: str) -> None:
        change = encode_isr_change([TopicPartition(topic, 0) for topic in topics])
        await self._client.create(f"{znodes.ISR_CHANGES}/isr_change_", change, sequential=True)
        await self._settle(f"notify of the ISR of {_words(topics)}")

    async def log_dir_event(self, broker: int) -> None:
        content = f'{{"version":1,"broker":{broker},"event":1}}'.encode()
        await self._client.create(f"{znodes.LOG_DIR_EVENTS}/log_dir_event_", content, sequential=True)
        await self._settle(f"{broker} tells that a log directory failed")

    # ---- verbs: requests

    async def alter_isr(
        self,
        topic: str,
        broker: int,
        isr: Sequence[int],
        leader_epoch: int,
        partition_epoch: int,
        *,
        partition: int = 0,
        version: int = 3,
        recovery: int = 0,
        stale_broker: bool = False,
    ) -> Any:
        """The broker sends AlterPartition; the answer."""
        members = [BrokerState(b, -1) for b in isr] if version >= 3 else []
        asked = AlterPartitionRequestPartitionData(
            partition_index=partition,
            leader_epoch=leader_epoch,
            new_isr=tuple(isr) if version < 3 else (),
            new_isr_with_epochs=members,
            leader_recovery_state=recovery,
            partition_epoch=partition_epoch,
        )
        topic_id = self.topic_ids.get(topic, uuid.uuid5(uuid.NAMESPACE_DNS, topic))
        named = AlterPartitionRequestTopicData(
            topic_name=topic if version < 2 else "", topic_id=topic_id if version >= 2 else uuid.UUID(int=0),
            partitions=[asked],
        )  # fmt: skip
        epoch = self._broker_epoch(broker, stale_broker)
        answer = await self._ask(ApiKey.ALTER_PARTITION, version, AlterPartitionRequest(broker, epoch, [named]))
        text = said.alter_partition_said(answer, self.topic_ids)
        flags = f"{f', recovery {recovery}' if recovery else ''}{', a stale broker' if stale_broker else ''}"
        what = (
            f"{broker} asks v{version} for {topic}-{partition} ISR {isr} at {leader_epoch} / {partition_epoch}{flags}"
        )
        await self._settle(what, text)
        return text

    async def controlled_shutdown(self, broker: int, *, stale_broker: bool = False, version: int = 3) -> Any:
        epoch = self._broker_epoch(broker, stale_broker) if version >= 2 else -1
        request = ControlledShutdownRequest(broker, epoch)
        text = said.shutdown_said(await self._ask(ApiKey.CONTROLLED_SHUTDOWN, version, request))
        await self._settle(f"{broker} asks v{version} to shut down{', a stale broker' if stale_broker else ''}", text)
        return text

    async def state(self, topic: str, partition: int) -> LeaderAndIsr | None:
        """As ZooKeeper has it; no step."""
        named = TopicPartition(topic, partition)
        try:
            data, stat = await self._client.get(znodes.state_path(named))
        except NoNode:
            return None
        return znodes.decode_state(named, data, stat.version)

    async def release(self, broker: int, api_name: str) -> None:
        self.brokers[broker].release(api_name)
        await self._settle(f"{broker} answers {api_name} at last")

    # ---- inside

    async def _birth(self, number: int, short_session: bool = False) -> None:
        recorder = Recorder(number, self._hosts, *((SHORT_SESSION_MS,) if short_session else ()))
        await recorder.start()
        self.brokers[number] = recorder
        self._heard[recorder] = 0
        self._roles[recorder.session] = f"broker {number}"

    def _broker_epoch(self, broker: int, is_stale: bool) -> int:
        recorder = self.brokers.get(broker)
        return 0 if recorder is None else recorder.epoch - is_stale

    async def _ask(self, api_key: ApiKey, version: int, message: Any) -> Any:
        assert self._node is not None
        connection = await Connection.open(real_world(), HOST, self._node.port, "script", PATIENCE_S)
        try:
            return await connection.request(api_key, version, message, PATIENCE_S)
        finally:
            connection.close()

    async def _settle(self, did: str, answer: Any = None) -> None:
        """Until no transaction, no request and no event happened for a while; then the step is written down."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        quiet_s = self._node.quiet_s if self._node is not None else 0
        before, since = await self._activity(), loop.time()
        while loop.time() - since < quiet_s:
            if loop.time() > deadline:
                raise KlammError(f"{did}: not at rest after {PATIENCE_S:g} s")
            await asyncio.sleep(LOOK_S)
            now = await self._activity()
            if now != before or self._is_busy():
                before, since = now, loop.time()
        step = Step(did, answer)
        self.steps.append(step)
        await self._see_tree(step)
        self._see_writes(step, before[0])
        await self._listen()

    def _is_busy(self) -> bool:
        if self._node is None:
            return False
        late = {number for number, recorder in self.brokers.items() if recorder.is_holding}
        return self._node.is_busy or bool(self._node.owes - late)

    async def _activity(self) -> tuple[int, int]:
        status = (await asyncio.to_thread(ask, HOST, self._server.port, b"srvr")).decode()
        [zxid] = [line.removeprefix("Zxid: ") for line in status.splitlines() if line.startswith("Zxid: ")]
        return int(zxid, 16), sum(len(r.received) for r in self._heard)

    async def _see_tree(self, step: Step) -> None:
        tree: dict[str, str] = {}
        paths = ["/"]
        while paths:
            found = await self._client.get_many(paths)
            listed = await self._client.children_many(paths)
            following: list[str] = []
            for path, node, children in zip(paths, found, listed, strict=True):
                if node.stat is None:
                    continue
                self._learn_topic_id(path, node.data)
                owner = self._roles.get(node.stat.ephemeral_owner, "the node") if node.stat.ephemeral_owner else ""
                tree[path] = f"{said.content_said(path, node.data)} v{node.stat.version}{owner and f' of {owner}'}"
                following += [f"{path.rstrip('/')}/{child}" for child in children.children or ()]
            paths = following
        step.tree = {
            p: tree.get(p) for p in sorted(tree.keys() | self._tree.keys()) if tree.get(p) != self._tree.get(p)
        }
        self._tree = tree

    def _learn_topic_id(self, path: str, data: bytes | None) -> None:
        parent, _, topic = path.rpartition("/")
        if parent == znodes.TOPICS and topic not in self.topic_ids and data:
            topic_id = znodes.decode_topic(topic, data).topic_id
            if topic_id is not None:
                self.topic_ids[topic] = topic_id

    def _see_writes(self, step: Step, until_zxid: int) -> None:
        for write in writes(self._server.directory, self._zxid):
            if write.zxid > until_zxid or not write.path.startswith(self._chroot) or write.session in self._roles:
                continue
            path = write.path.removeprefix(self._chroot) or "/"
            text = write.kind if write.kind == "delete" else f"{write.kind} {said.content_said(path, write.data)}"
            step.writes.setdefault(path, []).append(text)
        step.writes = dict(sorted(step.writes.items()))
        self._zxid = until_zxid

    async def _listen(self) -> None:
        """Add to the newest step what the brokers heard since."""
        for recorder, heard in self._heard.items():
            story = said.story(recorder.received[heard:], recorder.epoch, self.topic_ids)
            self._heard[recorder] = len(recorder.received)
            if story and self.steps:
                self.steps[-1].requests[str(recorder.number)] = story


def _assigned(assignment: Sequence[Sequence[int]]) -> dict[int, ReplicaAssignment]:
    return {i: ReplicaAssignment(tuple(map(BrokerId, replicas))) for i, replicas in enumerate(assignment)}


def _words(items: Sequence[object]) -> str:
    return " and ".join(map(str, items))
