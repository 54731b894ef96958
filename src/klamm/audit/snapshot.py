"""A cluster's znodes, read once. Znodes that cannot be read are kept with the reason."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.runtime.main_loop import run_loop
from klamm.runtime.world import World, real_world
from klamm.zk import znodes
from klamm.zk.admin_znodes import (
    decode_cluster_id,
    decode_config,
    decode_features,
    decode_preferred_election,
    decode_producer_id_block,
    decode_reassignment,
)
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import NoNode, ZkCode, ZkError
from klamm.zk.fenced import chunks
from klamm.zk.jute import Stat
from klamm.zk.registrations import Registration, decode_registration
from klamm.zk.znodes import MalformedZnode

T = TypeVar("T")

SESSION_MS: Final = 30_000
CHUNK: Final = 2_000
DEFAULT_BROKERS: Final = "<default>"
REQUIRED: Final = (
    znodes.TOPICS,
    "/config/topics",
    "/config/changes",
    znodes.DELETE_TOPICS,
    znodes.ISR_CHANGES,
    znodes.LOG_DIR_EVENTS,
)
"""Brokers create these at their first start, and watch or list them."""
ENTITY_TYPES: Final = ("brokers", "clients", "users", "ips")
READABLE_ONLY: Final[dict[str, Callable[[bytes | None], object]]] = {
    "/cluster/id": decode_cluster_id,
    "/latest_producer_id_block": decode_producer_id_block,
}
"""Znodes that are only checked for being readable."""


class Ownership(NamedTuple):
    """Who owns a znode. An `owner_session` of 0: the znode is not ephemeral."""

    owner_session: int
    czxid: int


UNOWNED: Final = Ownership(0, 0)


class Age(NamedTuple):
    path: str
    created_ms: int


class OpenTransaction(NamedTuple):
    """As the partition's leader describes it."""

    partition: TopicPartition
    producer_id: int
    start_offset: int
    last_append_ms: int
    has_coordinator: bool | None = None
    """Whether a transaction coordinator has it, and so ends it; None where not all of them were asked."""


@dataclass(slots=True)
class Snapshot:
    taken_ms: int
    controller: BrokerId | None = None
    controller_ownership: Ownership = UNOWNED
    is_kraft: bool = False
    controller_epoch: int | None = None
    controller_epoch_version: int = -1
    features: dict[str, int] = field(default_factory=dict)
    """Finalized features: name -> level."""
    brokers: dict[BrokerId, Registration] = field(default_factory=dict)
    broker_ownership: dict[BrokerId, Ownership] = field(default_factory=dict)
    topic_ids: dict[str, uuid.UUID | None] = field(default_factory=dict)
    assignments: dict[TopicPartition, ReplicaAssignment] = field(default_factory=dict)
    states: dict[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    topic_changed_ms: dict[str, int] = field(default_factory=dict)
    """Topic -> when its assignment was written last, in ms since 1970."""
    new_partitions: set[TopicPartition] = field(default_factory=set)
    """Partitions of which no controller has written any znode yet."""
    state_changed_ms: dict[TopicPartition, int] = field(default_factory=dict)
    """When the state of a partition that is being reassigned was written last, in ms since 1970."""
    stray_partitions: list[TopicPartition] = field(default_factory=list)
    """Znodes of partitions that their topic does not have."""
    malformed_ids: list[str] = field(default_factory=list)
    """Names below `/brokers/ids` that are not broker ids."""
    missing: list[str] = field(default_factory=list)
    """Required znodes that do not exist."""
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    default_config: dict[str, str] = field(default_factory=dict)
    """Dynamic configs of all brokers."""
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Broker id -> dynamic configs of that broker."""
    deletions: dict[str, int] = field(default_factory=dict)
    """Topic -> when its deletion was requested, in ms since 1970."""
    reassignment: dict[TopicPartition, tuple[BrokerId, ...]] | None = None
    """The content of `/admin/reassign_partitions`; None when it does not exist."""
    reassignment_requested_ms: int = 0
    preferred_election: list[TopicPartition] | None = None
    preferred_election_requested_ms: int = 0
    notifications: list[Age] = field(default_factory=list)
    """ISR changes and log directory events that are not handled yet."""
    malformed: dict[str, str] = field(default_factory=dict)
    """Path -> what is wrong with its content."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Path -> ZooKeeper's error when we may not read it."""
    open_transactions: list[OpenTransaction] = field(default_factory=list)
    """From the leaders, not from ZooKeeper; empty if they were not asked."""
    connect: str = "HOST:PORT"
    """Where it was read, for the remedies."""

    @property
    def live(self) -> set[BrokerId]:
        """The registered brokers."""
        return set(self.brokers)


class CannotAudit(KlammError):
    pass


def take_snapshot(zookeeper: str, timeout_s: float, auth: Sequence[str] = ()) -> Snapshot:
    """Connect to ZooKeeper, and read the cluster's znodes. Raises CannotAudit."""
    return run_loop(_connect_and_read(real_world(), zookeeper, timeout_s, [parse_auth(text) for text in auth]))


def parse_auth(text: str) -> tuple[str, bytes]:
    """Parse `SCHEME:CREDENTIALS`, for example `digest:user:password`. Raises CannotAudit."""
    scheme, colon, credentials = text.partition(":")
    if not colon or not scheme or not credentials:
        raise CannotAudit(  # without the text, which may be the secret
            "The value of --auth is not SCHEME:CREDENTIALS. Give for example digest:kafka:secret."
        )
    return scheme, credentials.encode()


async def _connect_and_read(
    world: World, zookeeper: str, timeout_s: float, auth: Sequence[tuple[str, bytes]]
) -> Snapshot:
    """Open a session, and read the snapshot. Raises CannotAudit."""
    try:
        client = ZooKeeper(world, zookeeper, SESSION_MS)
        await client.connect(timeout_s)
    except (KlammError, ValueError) as error:
        raise CannotAudit(f"Cannot read ZooKeeper at {zookeeper}: {error}.") from error
    try:
        for scheme, credentials in auth:
            await client.add_auth(scheme, credentials)
        return await read_snapshot(client, world.clock.now_ms(), zookeeper)
    except NoNode as error:
        raise CannotAudit(
            f"There is no Kafka cluster at {zookeeper}: {error}. Add its chroot, for example {zookeeper}/kafka."
        ) from error
    finally:
        await client.close()


async def read_snapshot(client: ZooKeeper, now_ms: int, connect: str) -> Snapshot:
    """Read the cluster's znodes.

    Raises NoNode when there is no Kafka cluster under the chroot, ZkError when ZooKeeper fails.
    """
    reader = _SnapshotReader(client, Snapshot(now_ms, connect=connect))
    names, _ = await client.children(znodes.BROKER_IDS)
    await reader.read_registrations(sorted(n for n in names if _is_number(n)))
    reader.found.malformed_ids += sorted(n for n in names if not _is_number(n))
    await reader.read_controller()
    await reader.read_topics(await reader.list_children(znodes.TOPICS))
    await reader.read_admin_requests()
    await reader.read_other_znodes()
    return reader.found


def _is_number(name: str) -> bool:
    """Whether the name has ASCII digits only."""
    return name.isascii() and name.isdigit()


class _SnapshotReader:
    """Reads znodes into `found`; those that cannot be read are recorded there with the reason."""

    def __init__(self, client: ZooKeeper, found: Snapshot) -> None:
        self._client = client
        self.found = found

    async def list_children(self, path: str) -> list[str]:
        """Names of the children; empty when the znode does not exist or cannot be read."""
        try:
            return sorted((await self._client.children(path))[0])
        except NoNode:
            return []
        except ZkError as error:
            self.found.unreadable[path] = str(error)
            return []

    async def _read(self, path: str, decode: Callable[[bytes | None], T]) -> tuple[T, Stat] | None:
        """Read one znode. None when it does not exist, cannot be read or is malformed; the reason is recorded."""
        try:
            data, stat = await self._client.get(path)
            return decode(data), stat
        except NoNode:
            return None
        except MalformedZnode as error:
            self.found.malformed[path] = error.reason
        except ZkError as error:
            self.found.unreadable[path] = str(error)
        return None

    async def _read_all(
        self, keys: Sequence[Any], path: Callable[[Any], str], decode: Callable[[Any, bytes | None, Stat], None]
    ) -> None:
        """Read the znodes of these keys; `decode` stores their content, missing ones are skipped."""
        for chunk in chunks(keys, CHUNK):
            paths = [path(key) for key in chunk]
            for key, at, result in zip(chunk, paths, await self._client.get_many(paths), strict=True):
                if result.code is ZkCode.OK and result.stat is not None:
                    try:
                        decode(key, result.data, result.stat)
                    except MalformedZnode as error:
                        self.found.malformed[at] = error.reason
                elif result.code is not ZkCode.NO_NODE:
                    self.found.unreadable[at] = result.code.name

    async def read_registrations(self, ids: Sequence[str]) -> None:
        """Read the registrations of these broker ids."""

        def store_registration(number: str, data: bytes | None, stat: Stat) -> None:
            """Put the registration of one broker into the snapshot."""
            broker = BrokerId(int(number))
            self.found.broker_ownership[broker] = Ownership(stat.ephemeral_owner, stat.czxid)
            self.found.brokers[broker] = decode_registration(broker, data, stat.czxid)

        await self._read_all(ids, lambda number: f"{znodes.BROKER_IDS}/{number}", store_registration)

    async def read_controller(self) -> None:
        """Read `/controller` and the controller epoch."""
        found = self.found
        if (read := await self._read(znodes.CONTROLLER, lambda data: data)) is not None:
            data, stat = read
            holder = znodes.decode_controller(data)
            if holder is None:
                found.malformed[znodes.CONTROLLER] = f"{data!r} is not a broker"
            else:
                found.controller, found.is_kraft = holder.broker, holder.is_kraft
                found.controller_ownership = Ownership(stat.ephemeral_owner, stat.czxid)
        if (epoch := await self._read(znodes.CONTROLLER_EPOCH, znodes.decode_controller_epoch)) is not None:
            found.controller_epoch, found.controller_epoch_version = epoch[0], epoch[1].version

    async def read_topics(self, names: Sequence[str]) -> None:
        """Read assignments, partition states and configs of the topics."""
        found = self.found

        def store_topic(name: str, data: bytes | None, stat: Stat) -> None:
            """Put id and assignment of one topic into the snapshot."""
            znode = znodes.decode_topic(name, data)
            found.topic_ids[name] = znode.topic_id
            found.topic_changed_ms[name] = stat.mtime
            found.assignments.update((TopicPartition(name, n), a) for n, a in znode.partitions.items())

        def store_state(p: TopicPartition, data: bytes | None, stat: Stat) -> None:
            """Put leader and ISR of one partition into the snapshot."""
            found.states[p] = znodes.decode_state(p, data, stat.version)
            if found.assignments[p].is_being_reassigned:
                found.state_changed_ms[p] = stat.mtime

        def store_config(name: str, data: bytes | None, stat: Stat) -> None:
            """Put the configs of one topic into the snapshot."""
            found.configs[name] = decode_config("topics", name, data)

        await self._read_all(names, znodes.topic_path, store_topic)
        there = await self._list_partitions(names)  # before the states: controllers write both at once
        await self._read_all(list(found.assignments), znodes.state_path, store_state)
        found.stray_partitions += (p for p in there if p not in found.assignments)
        found.new_partitions.update(p for p in found.assignments.keys() - found.states.keys() if p not in there)
        await self._read_all(await self.list_children("/config/topics"), znodes.topic_config_path, store_config)

    async def _list_partitions(self, names: Sequence[str]) -> dict[TopicPartition, None]:
        """The partitions that have a znode, of those of these topics whose assignments are known, in order."""
        there: dict[TopicPartition, None] = {}
        for chunk in chunks(names, CHUNK):
            results = await self._client.children_many([znodes.partitions_path(name) for name in chunk])
            for name, result in zip(chunk, results, strict=True):
                if result.code is ZkCode.OK and name in self.found.topic_ids:
                    numbers = (n for n in sorted(result.children) if _is_number(n))
                    there |= dict.fromkeys(TopicPartition(name, int(n)) for n in numbers)
        return there

    async def read_admin_requests(self) -> None:
        """Read requests (deletions, reassignments, elections), notifications, and the default broker configs."""
        found = self.found
        path = znodes.config_path("brokers", DEFAULT_BROKERS)
        if (config := await self._read(path, lambda d: decode_config("brokers", DEFAULT_BROKERS, d))) is not None:
            found.default_config = config[0]
        await self._read_all(
            await self.list_children(znodes.DELETE_TOPICS),
            znodes.delete_topic_path,
            lambda name, data, stat: found.deletions.__setitem__(name, stat.ctime),
        )
        if (request := await self._read(znodes.REASSIGN_PARTITIONS, decode_reassignment)) is not None:
            found.reassignment, found.reassignment_requested_ms = request[0], request[1].ctime
        if (elect := await self._read(znodes.PREFERRED_ELECTION, decode_preferred_election)) is not None:
            found.preferred_election, found.preferred_election_requested_ms = elect[0], elect[1].ctime
        for parent in (znodes.ISR_CHANGES, znodes.LOG_DIR_EVENTS):
            await self._read_all(
                [f"{parent}/{child}" for child in await self.list_children(parent)],
                str,
                lambda at, data, stat: found.notifications.append(Age(at, stat.ctime)),
            )

    async def read_other_znodes(self) -> None:
        """Read the znodes that must exist, the features znode, and znodes of which only the readability is checked."""
        found = self.found
        needed = await self._client.get_many(REQUIRED)
        found.missing += [path for path, r in zip(REQUIRED, needed, strict=True) if r.code is ZkCode.NO_NODE]
        for path, decode in READABLE_ONLY.items():
            await self._read(path, decode)
        if (features := await self._read(znodes.FEATURE, decode_features)) is not None and features[0].enabled:
            found.features = features[0].levels
        for entity_type in ENTITY_TYPES:
            await self._read_configs(entity_type)

    async def _read_configs(self, entity_type: str) -> None:
        """Check the configs of one entity type, and store those of brokers."""

        def decode_and_store(name: str, data: bytes | None, stat: Stat) -> None:
            """Check that the config znode can be decoded; put those of brokers into the snapshot."""
            config = decode_config(entity_type, name, data)
            if entity_type == "brokers":
                self.found.broker_configs[name] = config

        names = [name for name in await self.list_children(f"/config/{entity_type}") if name != DEFAULT_BROKERS]
        await self._read_all(names, lambda name: znodes.config_path(entity_type, name), decode_and_store)
