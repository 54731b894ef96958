"""Reads and writes of any node in ZooKeeper, in Kafka's terms; those of the controller are in `controller_store`.

Source: KafkaZkClient.scala, AdminZkClient.scala (3.9).
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.model.topic_ids import id_to_text
from klamm.zk import znodes
from klamm.zk.admin_znodes import (
    FinalizedFeatures,
    ProducerIdBlock,
    decode_cluster_id,
    decode_config,
    decode_features,
    decode_producer_id_block,
    encode_cluster_id,
    encode_config,
    encode_isr_change,
    encode_log_dir_event,
    encode_producer_id_block,
)
from klamm.zk.configs import ConfigStore
from klamm.zk.controller_handover import HandoverRequest, remove_handover_request, watch_handover_request
from klamm.zk.election import ControllerEpoch, register_controller, replace_controller
from klamm.zk.errors import BadVersion, NodeExists, NoNode, ZkCode, ZkError
from klamm.zk.jute import Stat
from klamm.zk.port import ZooKeeperClient
from klamm.zk.process_ends import begin_process_record, read_process_ends
from klamm.zk.registrations import Registration, decode_registration
from klamm.zk.topic_creation import TopicToCreate, find_taken_names, write_topics
from klamm.zk.topic_requests import TopicRequestStore
from klamm.zk.znodes import MalformedZnode, TopicZnode

PRODUCER_ID_BLOCK_SIZE = 1_000
"""Producer ids that a broker gets at a time."""
_LAST_PRODUCER_ID = 2**63 - 1


class TopicExists(KlammError):
    """The topic exists, or is still being deleted."""


class ControllerZnode(NamedTuple):
    """The content of `/controller`; `owner_session` is 0 for KRaft's, which is not ephemeral."""

    broker: BrokerId
    owner_session: int
    version: int
    is_kraft: bool


class UnreadableRegistration(NamedTuple):
    """Why a broker's registration cannot be read: it is malformed, or ZooKeeper does not let this node read it."""

    why: str
    czxid: int | None
    """The epoch of the registered broker; None where an ACL hides it, too."""


class Registrations(NamedTuple):
    """The registered brokers, and the registrations that cannot be read."""

    brokers: dict[BrokerId, Registration]
    unreadable: dict[BrokerId, UnreadableRegistration]


class Unreadable(NamedTuple):
    """Why a topic's znode cannot be read."""

    why: str
    mzxid: int = 0
    """The zxid of the znode's last change; 0 if ZooKeeper does not let this node read it."""


class Store:
    """Reads, and writes without a fence: top-level paths, cluster id, topics, configs, producer ids."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self.client = client
        """For uses without a method here: registrations, and tools for operators and tests."""
        self.configs = ConfigStore(client)
        self.topic_requests = TopicRequestStore(client)

    # ---- the session

    @property
    def session_id(self) -> int:
        """The session's id; 0 before the first connection."""
        return self.client.session_id

    @property
    def session_timeout_ms(self) -> int:
        """The session timeout that was negotiated with the ensemble."""
        return self.client.session_timeout_ms

    @property
    def is_alive(self) -> bool:
        """Whether the session has not expired, been refused or closed; it may be disconnected."""
        return self.client.is_alive

    @property
    def seen_zxid(self) -> int:
        """The newest transaction id of ZooKeeper that this session has seen."""
        return self.client.seen_zxid

    async def sync(self, path: str) -> None:
        """Wait until the connected server has all changes committed before, so that following reads see them."""
        await self.client.sync(path)

    # ---- elections of the controller

    async def register_controller(self, broker: BrokerId, now_ms: int) -> ControllerEpoch:
        """Become controller. Raises ControllerMoved if another broker was faster, ZkError for other errors."""
        return await register_controller(self.client, broker, now_ms)

    async def replace_controller(self, broker: BrokerId, now_ms: int, epoch: int) -> ControllerEpoch:
        """Become controller in place of the controller of `epoch`. Raises as `register_controller`."""
        return await replace_controller(self.client, broker, now_ms, epoch)

    async def delete_controller_version(self, version: int) -> None:
        """Delete `/controller` if it still has this version. Raises NoNode, BadVersion."""
        await self.client.delete(znodes.CONTROLLER, version)

    async def watch_handover_request(self) -> HandoverRequest | None:
        """An operator's request to make another node the controller, or None; its next change is watched.

        Raises MalformedZnode.
        """
        return await watch_handover_request(self.client)

    async def remove_handover_request(self, version: int) -> None:
        """Remove the handover request of this version, unless it was removed or replaced."""
        await remove_handover_request(self.client, version)

    # ---- the cluster

    async def create_top_level_paths(self) -> None:
        """Create the chroot and the znodes that every Kafka broker expects."""
        await self.client.ensure_chroot()
        await self.client.ensure_paths(znodes.TOP_LEVEL)

    async def read_or_create_cluster_id(self, candidate: uuid.UUID) -> str:
        """Return the cluster's id; where there is none, store the candidate as the id."""
        try:
            return decode_cluster_id((await self.client.get(znodes.CLUSTER_ID))[0])
        except NoNode:
            await self.client.ensure_path("/cluster")
        try:
            await self.client.create(znodes.CLUSTER_ID, encode_cluster_id(id_to_text(candidate)))
        except NodeExists:
            return await self.read_or_create_cluster_id(candidate)
        return id_to_text(candidate)

    async def read_controller(self, watch: bool = False) -> ControllerZnode | None:
        """The content of `/controller`; None if it does not exist or cannot be decoded.

        With `watch`, its next creation, change or deletion is watched.
        """
        found = await self._get(znodes.CONTROLLER, watch)
        if found is None:
            return None
        data, stat = found
        read = znodes.decode_controller(data)
        if read is None:
            return None
        return ControllerZnode(read.broker, stat.ephemeral_owner, stat.version, read.is_kraft)

    async def _get(self, path: str, watch: bool) -> tuple[bytes | None, Stat] | None:
        """Content and stat of a znode; None if it does not exist. With `watch`, its creation is watched, too.

        Since it usually exists, its content is read first.
        """
        while True:
            try:
                return await self.client.get(path, watch)
            except NoNode:
                if not watch or await self.client.exists(path, watch=True) is None:
                    return None  # else it was created between the two calls

    async def generate_broker_id(self, reserved_max: int) -> BrokerId:
        """Generate a broker id above `reserved.broker.max.id` that no other broker gets."""
        await self.client.ensure_path(znodes.BROKER_SEQUENCE)
        stat = await self.client.set(znodes.BROKER_SEQUENCE, b"")
        return BrokerId(stat.version + reserved_max)

    async def read_brokers(self, watch: bool = False) -> Registrations:
        """All registrations; with `watch`, the list and each registration are watched."""
        children, _ = await self.client.children(znodes.BROKER_IDS, watch=watch)
        ids = sorted(b for b in map(znodes.broker_id_of, children) if b is not None)
        results = await self.client.get_many([znodes.broker_path(b) for b in ids], watch=watch)
        found = Registrations({}, {})
        for broker, result in zip(ids, results, strict=True):
            if result.code is ZkCode.NO_NODE:
                continue  # gone since the list was read; its watch has fired
            if result.code is not ZkCode.OK or result.stat is None:
                found.unreadable[broker] = UnreadableRegistration(f"ZooKeeper answered {result.code.name}", None)
                continue
            try:
                found.brokers[broker] = decode_registration(broker, result.data, result.stat.czxid)
            except MalformedZnode as error:
                found.unreadable[broker] = UnreadableRegistration(str(error), result.stat.czxid)
        return found

    async def read_broker(self, broker: BrokerId, watch: bool = False) -> Registration | None:
        """The registration of one broker, or None. Raises MalformedZnode."""
        try:
            data, stat = await self.client.get(znodes.broker_path(broker), watch=watch)
        except NoNode:
            return None
        return decode_registration(broker, data, stat.czxid)

    async def begin_process_record(self, broker: BrokerId) -> None:
        """Remove the record about the broker's earlier process. Raises ZkError where ZooKeeper does not allow it."""
        await begin_process_record(self.client, broker)

    async def read_process_ends(self, registered: Mapping[BrokerId, int]) -> dict[BrokerId, str]:
        """Return how processes of brokers ended, by the epochs of their registrations; see `read_process_ends`."""
        return await read_process_ends(self.client, registered)

    async def watch_registration(self, broker: BrokerId) -> int | None:
        """The session that owns the broker's registration, or None; its next change is watched."""
        stat = await self.client.exists(znodes.broker_path(broker), watch=True)
        return None if stat is None else stat.ephemeral_owner

    async def watch_features(self) -> tuple[FinalizedFeatures, int] | None:
        """Return the finalized features and the znode's version, or None, and watch the next change.

        Raises MalformedZnode.
        """
        found = await self._get(znodes.FEATURE, watch=True)
        return None if found is None else (decode_features(found[0]), found[1].version)

    # ---- topics

    async def list_topics(self, watch: bool = False) -> list[str]:
        """All topics, in order of names; only the controller may set the watch (KAFKA-9498)."""
        return sorted((await self.client.children(znodes.TOPICS, watch=watch))[0])

    async def read_topics(
        self, topics: Sequence[str], watch: bool = False
    ) -> tuple[dict[str, TopicZnode], dict[str, Unreadable]]:
        """The topics that exist, and the reasons for those that cannot be read."""
        results = await self.client.get_many([znodes.topic_path(t) for t in topics], watch=watch)
        found: dict[str, TopicZnode] = {}
        unreadable: dict[str, Unreadable] = {}
        for topic, result in zip(topics, results, strict=True):
            if result.code is ZkCode.NO_NODE:
                continue
            if result.code is not ZkCode.OK or result.stat is None:
                unreadable[topic] = Unreadable(f"ZooKeeper answered {result.code.name}")
                continue
            try:
                decoded = znodes.decode_topic(topic, result.data)
                found[topic] = decoded._replace(czxid=result.stat.czxid, mzxid=result.stat.mzxid)
            except MalformedZnode as error:
                unreadable[topic] = Unreadable(str(error), result.stat.mzxid)
        return found, unreadable

    async def deleted_partitions(
        self, partitions: Iterable[TopicPartition], requests_count: bool
    ) -> frozenset[TopicPartition]:
        """Those of the partitions that are deleted for certain, by ZooKeeper's newest state.

        With `requests_count`, so are those of topics with a deletion request.
        """
        asked = list(partitions)
        topics = sorted({p.topic for p in asked})
        await self.sync(znodes.TOPICS)
        found, unreadable = await self.read_topics(topics)
        requests = await self.client.exists_many([znodes.delete_topic_path(t) for t in topics])
        requested = {t for t, stat in zip(topics, requests, strict=True) if requests_count and stat is not None}

        def is_deleted(p: TopicPartition) -> bool:
            """Whether the topic is gone or going, or has fewer partitions; what cannot be read may be there."""
            if p.topic in requested:
                return True
            return p.topic not in unreadable and (p.topic not in found or p.partition not in found[p.topic].partitions)

        return frozenset(p for p in asked if is_deleted(p))

    async def watch_topics(self, topics: Sequence[str]) -> list[Stat | None]:
        """The stats of these topics' znodes, in the same order, None for a missing one; each next change is watched.

        Raises NoAuth.
        """
        return await self.client.exists_many([znodes.topic_path(topic) for topic in topics], watch=True)

    async def create_topic(
        self,
        topic: str,
        assignment: Mapping[int, ReplicaAssignment],
        topic_id: uuid.UUID | None,
        config: Mapping[str, str],
    ) -> None:
        """Create a topic, its config first, so that the controller finds it. Raises TopicExists."""
        if (why := (await self.check_new_topics([topic]))[topic]) is not None:
            raise TopicExists(why)
        await self.write_config("topics", topic, config)
        try:
            await self.client.create(znodes.topic_path(topic), znodes.encode_topic(topic_id, assignment))
        except NodeExists as error:
            raise TopicExists(f"Topic '{topic}' already exists.") from error

    async def read_partition_count(self, topic: str) -> int | None:
        """The number of the topic's partitions, or None if it does not exist. Raises MalformedZnode."""
        found = await self._get(znodes.topic_path(topic), watch=False)
        if found is None:
            return None
        return len(znodes.decode_topic(topic, found[0]).partitions)

    async def check_new_topics(self, names: Sequence[str]) -> dict[str, str | None]:
        """By name, why no topic of that name can be created; None where it can."""
        return await find_taken_names(self.client, names)

    async def create_topics(self, wanted: Sequence[TopicToCreate]) -> dict[str, KlammError]:
        """Create many topics in few multis; returns the errors of those that were not created.

        The names were checked before. A topic that another client created meanwhile fails alone, with TopicExists. A
        topic that exists with the wanted id was created by us: only the answer was lost.
        """
        refused: dict[str, KlammError] = {}
        left = await write_topics(self.client, wanted, refused)
        there, _ = await self.read_topics([topic.name for topic in left])
        for topic in left:
            if topic.name in there and topic.topic_id is not None and there[topic.name].topic_id == topic.topic_id:
                continue
            try:
                await self.create_topic(*topic)
            except (TopicExists, ZkError) as error:
                refused[topic.name] = error
        return refused

    # ---- configs

    async def write_config(self, entity_type: str, entity: str, config: Mapping[str, str]) -> None:
        """Write the config of an entity, and create its znode if needed."""
        path = znodes.config_path(entity_type, entity)
        try:
            await self.client.set(path, encode_config(config))
        except NoNode:
            await self.client.ensure_path(path.rpartition("/")[0])
            try:
                await self.client.create(path, encode_config(config))
            except NodeExists:
                await self.client.set(path, encode_config(config))

    async def read_config(self, entity_type: str, entity: str) -> dict[str, str]:
        """The config of an entity; empty if there is none. Raises MalformedZnode."""
        try:
            data, _ = await self.client.get(znodes.config_path(entity_type, entity))
        except NoNode:
            return {}
        return decode_config(entity_type, entity, data)

    async def read_committed_topic_configs(
        self, topics: Sequence[str]
    ) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
        """Read as `read_topic_configs`, and miss nothing that was written before, also where the server lags.

        Nobody announces the config of a new topic: who misses it never gets it.
        """
        await self.sync(znodes.CONFIG)
        return await self.read_topic_configs(topics)

    async def read_topic_configs(self, topics: Sequence[str]) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
        """The config of each topic, and the reasons for those that cannot be read."""
        results = await self.client.get_many([znodes.topic_config_path(t) for t in topics])
        found: dict[str, dict[str, str]] = {}
        unreadable: dict[str, str] = {}
        for topic, result in zip(topics, results, strict=True):
            if result.code not in (ZkCode.OK, ZkCode.NO_NODE):
                unreadable[topic] = f"cannot read {znodes.topic_config_path(topic)}: {result.code.name}"
                continue
            try:
                found[topic] = decode_config("topics", topic, result.data)
            except MalformedZnode as error:
                unreadable[topic] = str(error)
        return found, unreadable

    # ---- partition states, as a leader of protocol 2.6 writes them

    async def read_state(self, partition: TopicPartition) -> LeaderAndIsr:
        """The state of a partition. Raises NoNode, MalformedZnode."""
        data, stat = await self.client.get(znodes.state_path(partition))
        return znodes.decode_state(partition, data, stat.version)

    async def write_state(self, partition: TopicPartition, state: LeaderAndIsr, version: int) -> int:
        """Write a partition's state if its znode has this version; returns the next one. Raises NoNode, BadVersion."""
        return (await self.client.set(znodes.state_path(partition), znodes.encode_state(state), version)).version

    # ---- notifications

    async def announce_isr_changes(self, partitions: Sequence[TopicPartition]) -> None:
        """Notify the controller of ISR changes that this node wrote."""
        path = f"{znodes.ISR_CHANGES}/isr_change_"
        await self.client.create(path, encode_isr_change(partitions), sequential=True)

    async def announce_log_dir_failure(self, broker: BrokerId) -> None:
        """Notify the controller of a failed log directory; a duplicate does no harm."""
        path = f"{znodes.LOG_DIR_EVENTS}/{znodes.LOG_DIR_EVENT_PREFIX}"
        await self.client.create(path, encode_log_dir_event(broker), sequential=True)

    # ---- producer ids

    async def allocate_producer_ids(self, broker: BrokerId) -> ProducerIdBlock:
        """Allocate the next 1000 producer ids. Raises MalformedZnode; KlammError when all 2^63 are used up."""
        while True:
            data, stat = await self.client.get(znodes.PRODUCER_ID_BLOCK)
            before = decode_producer_id_block(data)
            first = before.last + 1 if before else 0
            if first > _LAST_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE + 1:
                raise KlammError(
                    f"all producer ids are used up: the last block in {znodes.PRODUCER_ID_BLOCK} ends at {first - 1}"
                )
            block = ProducerIdBlock(broker, first, first + PRODUCER_ID_BLOCK_SIZE - 1)
            try:
                await self.client.set(znodes.PRODUCER_ID_BLOCK, encode_producer_id_block(block), stat.version)
            except BadVersion:
                continue  # another broker's block, or ours with its answer lost: then these ids are passed over
            return block
