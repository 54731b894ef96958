"""The controller's handlers against ZooKeeper in memory, with every request written down instead of sent."""

import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from tests.support.memory_zookeeper import MemoryEnsemble, MemoryZooKeeper

from klamm.controller.context import ControllerContext
from klamm.controller.control_requests import ControlItem, LeaderAndIsrItem, UpdateMetadataItem
from klamm.controller.events import AlterPartitionReceived, Event
from klamm.controller.handlers.failover import on_controller_failover
from klamm.controller.metrics import ControllerMetrics
from klamm.controller.mirror import Mirror
from klamm.controller.observer import Observer
from klamm.controller.request_batch import RequestBatch
from klamm.controller.settings import ControllerSettings
from klamm.controller.states import PartitionState
from klamm.controller.term_context import TermContext
from klamm.controller.timers import Timers
from klamm.controller.topic import Partition
from klamm.model.assignment import ReplicaAssignment
from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.model.ids import BrokerId, TopicPartition, parse_topic_partition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.model.topic_ids import ZERO_ID
from klamm.runtime.time_slices import PIECE, CountedSlices
from klamm.telemetry.journal import Journal
from klamm.telemetry.journal_reader import Entry, parse_lines
from klamm.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from klamm.zk import znodes
from klamm.zk.controller_store import ControllerStore
from klamm.zk.election import register_controller
from klamm.zk.errors import MalformedReply
from klamm.zk.operations import Delete, Op, Set
from klamm.zk.registrar import BrokerRegistrar
from klamm.zk.registrations import VERSION_WITH_FEATURES
from klamm.zk.store import Store

EventT = TypeVar("EventT", bound=Event)


class ListSink:
    """Keeps a journal's lines in memory."""

    incarnation = 1

    def __init__(self) -> None:
        self.content = b""

    def write(self, lines: bytes) -> None:
        self.content += lines


class FixedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


class RecordingChannels:
    """Writes requests down as text: `LISR a-0=1/[1,2,3]/0/0+new`, that is leader, ISR, leader and partition epoch."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, list[int]]] = []
        self.items: list[tuple[int, ControlItem]] = []
        self.open: list[int] = []
        self.unsent: set[TopicPartition] = set()
        self.log: list[str] = []

    def __len__(self) -> int:
        return len(self.open)

    def add(self, broker: Broker) -> str | None:
        if broker.endpoint("PLAINTEXT") is None:
            return "no listener"
        assert broker.id not in self.open
        self.open.append(broker.id)
        self.log.append(f"add {broker.id}")
        return None

    def remove(self, broker: BrokerId) -> None:
        if broker in self.open:
            self.open.remove(broker)
            self.log.append(f"remove {broker}")

    def send(self, broker: BrokerId, item: ControlItem) -> None:
        if broker not in self.open:
            return
        self.items.append((broker, item))
        text = words(item)
        if self.sent and self.sent[-1][0] == text and broker not in self.sent[-1][1]:
            self.sent[-1][1].append(broker)
        else:
            self.sent.append((text, [broker]))

    def waiting_deletions(self, broker: BrokerId) -> set[TopicPartition]:
        """Empty: recorded requests count as sent, unless a test says otherwise."""
        return self.unsent if broker in self.open else set()

    async def close(self) -> None:
        self.open.clear()

    def take(self) -> list[str]:
        """Remove and return the requests recorded since the last call, as `... -> 1,2`."""
        taken = [f"{text} -> {','.join(map(str, brokers))}" for text, brokers in self.sent]
        self.sent.clear()
        self.items.clear()
        return taken


def words(item: ControlItem) -> str:
    """A control request as text."""
    if isinstance(item, LeaderAndIsrItem):
        states = [f"{p}={_state(s)}{'+new' if s.is_new else ''}" for p, s in item.states.items()]
        return " ".join(["LISR", *states])
    if isinstance(item, UpdateMetadataItem):
        return " ".join(["UMR", *(f"{p}={s.leader}/{_list(s.isr)}/{s.leader_epoch}/{s.zk_version}" for p, s in
                                  item.states.items())])  # fmt: skip
    stops = [f"{p}@{s.leader_epoch}{'+delete' if s.delete_partition else ''}" for p, s in item.stops.items()]
    return " ".join(["SR", *stops])


def _state(state: object) -> str:
    s = state
    return f"{s.leader}/{_list(s.isr)}/{s.leader_epoch}/{s.partition_epoch}"  # type: ignore[attr-defined]


def _list(brokers: Iterable[int]) -> str:
    return f"[{','.join(map(str, brokers))}]"


def broker(number: int, host: str = "127.0.0.1") -> Broker:
    return Broker(BrokerId(number), (Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, host, 9000 + number),))


class Room:
    """`await Room.open(...)`: a cluster of brokers that never answer, and an active controller."""

    def __init__(self, settings: ControllerSettings | None = None) -> None:
        self.ensemble = MemoryEnsemble()
        self.settings = settings or ControllerSettings(BrokerId(1))
        self.channels = RecordingChannels()
        self.sink = ListSink()
        self.journal = Journal(self.sink, 1, FixedClock())
        self.sessions: dict[int, MemoryZooKeeper] = {}
        self.registration_version = VERSION_WITH_FEATURES
        self.client = self.ensemble.client()
        self.store = Store(self.client)
        self.put: list[Event] = []
        """What timers brought."""
        self.term: TermContext
        self.mirror: Mirror | None = None
        """A mirror for the next election to take."""
        self.observer: Observer | None = None

    @classmethod
    async def open(
        cls,
        brokers: Sequence[int] = (1, 2, 3),
        topics: Mapping[str, Sequence[Sequence[int]]] | None = None,
        settings: ControllerSettings | None = None,
        registration_version: int = VERSION_WITH_FEATURES,
    ) -> "Room":
        room = cls(settings)
        room.registration_version = registration_version
        await room.store.create_top_level_paths()
        for number in brokers:
            await room.register(number)
        for name, assignment in (topics or {}).items():
            await room.write_topic(name, assignment)
        await room.become_controller()
        room.channels.take()
        return room

    async def become_controller(self) -> None:
        """Begin a new term with an empty memory."""
        if "/controller" in self.ensemble.nodes:
            self.ensemble.apply([Delete("/controller")])
        epoch = await register_controller(self.client, BrokerId(1), 0)
        context = ControllerContext(epoch.epoch)
        context.observer = self.observer
        self.channels.open.clear()
        slices = CountedSlices(PIECE)
        self.term = TermContext(
            self.settings,
            context,
            ControllerStore(self.client, epoch),
            self.channels,  # type: ignore[arg-type]
            RequestBatch(context, self.settings, self.channels, slices),
            self.journal,
            lambda n: bytes([epoch.epoch]) * n,  # what is drawn anew in another term differs
            Timers(self.put.append),
            slices,
            ControllerMetrics(),
            FixedClock().now_ms,
            self.knows_features,
            self.take_mirror,
        )
        self.journal.controller_epoch = epoch.epoch
        self.term.cause = self.journal.event("Startup")
        await on_controller_failover(self.term)

    async def knows_features(self, epoch: int, timeout_s: float) -> bool:
        """Always true: features need no waiting here."""
        return True

    async def take_mirror(self, zxid: int) -> Mirror | None:
        """The mirror that a test gave this node, once."""
        mirror, self.mirror = self.mirror, None
        if mirror is not None:
            await mirror.finish(zxid)
        return mirror

    # ---- the world around

    async def register(self, number: int, host: str = "127.0.0.1") -> int:
        session = self.sessions[number] = self.ensemble.client()
        return await BrokerRegistrar(broker(number, host), version=self.registration_version).register(session, 0)

    def kill(self, number: int) -> None:
        """End a broker's session."""
        self.ensemble.expire(self.sessions.pop(number))

    async def write_topic(self, name: str, assignment: Sequence[Sequence[int]], **config: str) -> None:
        """Create a topic in ZooKeeper with this assignment and config."""
        partitions = {i: ReplicaAssignment(tuple(map(BrokerId, r))) for i, r in enumerate(assignment)}
        texts = {key.replace("_", "."): value for key, value in config.items()}
        await self.store.create_topic(name, partitions, uuid.uuid5(uuid.NAMESPACE_DNS, name), texts)

    def write_state(self, name: str, state: LeaderAndIsr) -> None:
        """Write a state znode without the controller."""
        path = znodes.state_path(parse_topic_partition(name))
        self.ensemble.apply([Set(path, znodes.encode_state(state))])

    def crash_after(self, writes: int) -> None:
        """The controller's host dies at the multi after this number of them; become_controller starts another one."""
        left = writes

        def die(ops: Sequence[Op]) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                self.ensemble.before_multi = lambda ops: None
                raise ConnectionError("dead")

        self.ensemble.before_multi = die

    def fail_once(self, path: str) -> None:
        """ZooKeeper fails the next multi that writes below a path; the session survives."""

        def fail(ops: Sequence[Op]) -> None:
            if any(op.path.startswith(path) for op in ops):
                self.ensemble.before_multi = lambda ops: None
                raise MalformedReply(path)

        self.ensemble.before_multi = fail

    # ---- looking

    def stored(self, name: str) -> LeaderAndIsr:
        """The state in ZooKeeper."""
        p = parse_topic_partition(name)
        node = self.ensemble.nodes[znodes.state_path(p)]
        return znodes.decode_state(p, node.data, node.version)

    def now(self, name: str) -> str:
        """Leader / ISR / leader epoch / partition epoch in ZooKeeper; asserts that the memory has the same."""
        stored = self.stored(name)
        assert self.partition(name).leadership == stored
        return f"{stored.leader} / {_list(stored.isr)} / {stored.leader_epoch} / {stored.partition_epoch}"

    def partition(self, name: str) -> Partition:
        p = parse_topic_partition(name)
        found = self.term.context.partition(p.topic, p.partition)
        assert found is not None
        return found

    def entries(self, kind: str) -> list[Entry]:
        """The journal entries of one kind."""
        self.journal.flush()
        return [e for e in parse_lines(self.sink.content) if e.kind == kind]

    async def handle(self, handler: Callable[[TermContext, EventT], Awaitable[None]], event: EventT) -> list[str]:
        """Let the handler handle an event. Returns the requests that it sent."""
        self.term.cause = self.journal.event(type(event).__name__)
        await handler(self.term, event)
        assert_counted(self.term.context)
        return self.channels.take()


def assert_counted(context: ControllerContext) -> None:
    """Assert that the counters that each change updates equal a new count."""
    kept = [p for p in context.partitions() if p.topic not in context.topics_to_be_deleted]
    assert context.partition_count == len(list(context.partitions()))
    assert context.offline_count == sum(p.state is PartitionState.OFFLINE for p in kept)
    led = [p for p in kept if p.leadership is not None and p.replicas]
    imbalanced = {p for p in led if p.leader != p.replicas[0]}
    assert {p for p in context.partitions() if p.is_imbalanced} == imbalanced
    assert context.imbalanced_count == len(imbalanced)


def alter_partition(
    room: Room, sender: int, leader_epoch: int, partition_epoch: int, isr: Sequence[int], name: str = "a-0"
) -> AlterPartitionReceived:
    """A leader's AlterPartition request, in the newest version."""
    p = parse_topic_partition(name)
    topic = room.term.context.topics[p.topic]
    data = AlterPartitionRequestPartitionData(
        partition_index=p.partition,
        leader_epoch=leader_epoch,
        new_isr_with_epochs=[BrokerState(b) for b in isr],
        partition_epoch=partition_epoch,
    )
    return AlterPartitionReceived(
        AlterPartitionRequest(
            broker_id=sender,
            broker_epoch=room.term.context.registered[BrokerId(sender)].epoch,
            topics=[AlterPartitionRequestTopicData(topic_id=topic.id or ZERO_ID, partitions=[data])],
        ),
        3,
    )
