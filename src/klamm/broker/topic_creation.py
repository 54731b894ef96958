"""Creates topics: checks in Kafka's order, placement, two znodes. Source: ZkAdminManager, AdminZkClient (3.9).

Any broker may write a new topic: the controller learns of it from ZooKeeper.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import structlog

from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.replica_placement import Placement, PlacementRefused, eligible_racks, place_replicas
from klamm.broker.topic_names import (
    CLUSTER_METADATA_TOPIC,
    has_collision_character,
    name_error,
    name_in_metrics,
)
from klamm.broker.topic_policy import KEY, CreateTopicPolicy, PolicyViolation, TopicAsked, policy_failure
from klamm.config.config_types import InvalidConfig
from klamm.config.node_config import NodeConfig
from klamm.config.topic_config import TopicConfig
from klamm.controller.settings import FIRST_WITH_TOPIC_IDS, parse_ibp
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.topic_ids import ZERO_ID, new_topic_id
from klamm.model.topic_names import INTERNAL_TOPICS
from klamm.runtime.randomness import Randomness
from klamm.runtime.time_slices import CountedSlices, Slices
from klamm.zk.errors import ConnectionLoss, SessionClosed, SessionExpired, ZkError
from klamm.zk.store import TopicExists
from klamm.zk.topic_creation import TopicToCreate

USE_DEFAULT: Final = -1
MAX_PARTITIONS: Final = 100_000
"""Of one topic: a larger znode would exceed ZooKeeper's limit."""
log = structlog.get_logger("topics")


class TopicStore(Protocol):
    """What creation needs of ZooKeeper; raises ZkError."""

    async def check_new_topics(self, names: Sequence[str]) -> dict[str, str | None]:
        """Return, for each name, why the topic cannot be created; None if it can."""

    async def list_topics(self) -> list[str]:
        """Return the names of all topics in ZooKeeper."""

    async def create_topics(self, wanted: Sequence[TopicToCreate]) -> dict[str, KlammError]:
        """Write the topics to ZooKeeper; return the error of each that was not created, by name."""


class NewTopic(NamedTuple):
    """A topic to create, as requested."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    placement: Placement | None = None
    """Replicas by partition where the client chose them."""
    configs: Sequence[tuple[str, str | None]] = ()


class Refusal(Exception):
    """One topic cannot be created. The client gets the text."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass(slots=True)
class Created:
    """The result for one topic."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    placement: Placement = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)
    topic_id: uuid.UUID = ZERO_ID


class _ExistingTopics(NamedTuple):
    """What ZooKeeper has of the requested topics."""

    why: Mapping[str, str | None]
    """By name; None where it is free."""
    others: dict[str, str]
    """All topics by their names in metrics, where one could collide with another; those of this request, too."""


class TopicCreation:
    """Creates topics for CreateTopics and for auto-creation."""

    def __init__(
        self,
        config: NodeConfig,
        cache: MetadataCache,
        store: Callable[[], TopicStore],
        randomness: Randomness,
        policy: CreateTopicPolicy | None = None,
    ) -> None:
        self._config = config
        self._cache = cache
        self._store = store
        self._randomness = randomness
        self._policy = policy
        self._gives_ids = parse_ibp(config.inter_broker_protocol_version) >= FIRST_WITH_TOPIC_IDS
        self._under_way: set[str] = set()
        self._reported: dict[str, str | None] = {}
        """Why an internal topic could not be created: logged once, although clients ask again and again."""

    async def create(self, topic: NewTopic, *, validate_only: bool = False) -> Created:
        """Create one topic and return the result."""
        [created] = await self.create_all([topic], CountedSlices(), validate_only=validate_only)
        return created

    async def create_all(
        self, topics: Sequence[NewTopic], slices: Slices, *, validate_only: bool = False
    ) -> list[Created]:
        """Create the topics; results in order, and a refused topic does not stop the others.

        Names must differ. All valid topics are written at once, so that the controller sees one change, however many
        there are.
        """
        made = await slices.list_of(Created(topic.name) for topic in topics)
        taken = await self._read_existing(topics, made, slices)
        wanted: list[TopicToCreate] = []
        for topic, created in zip(topics, made, strict=True):
            await slices.checkpoint()
            if not created.error:
                self._check_topic(topic, created, taken)
            if not created.error and not validate_only:
                assignment = {p: ReplicaAssignment(replicas) for p, replicas in created.placement.items()}
                topic_id = new_topic_id(self._randomness.bytes) if self._gives_ids else None
                created.topic_id = topic_id or ZERO_ID
                taken.others.setdefault(name_in_metrics(topic.name), topic.name)
                wanted.append(TopicToCreate(topic.name, assignment, topic_id, created.configs))
        await self._write_topics(wanted, await slices.dict_of((created.name, created) for created in made))
        return made

    async def _read_existing(
        self, topics: Sequence[NewTopic], made: Sequence[Created], slices: Slices
    ) -> _ExistingTopics:
        """Read from ZooKeeper which of these topics exist.

        The metadata cache may lag, and does not have topics that are being deleted.
        """
        names: list[str] = []
        collides = False
        async for piece in slices.over(topics):
            valid = [topic.name for topic in piece if not name_error(topic.name)]
            collides = collides or any(map(has_collision_character, valid))
            names += valid
        try:
            why = await self._store().check_new_topics(names) if names else {}
            existing = await self._store().list_topics() if collides else []
        except ZkError as error:
            for created in made:
                created.error, created.message = _write_error(error)
            return _ExistingTopics({}, {})
        return _ExistingTopics(why, await slices.dict_of((name_in_metrics(name), name) for name in existing))

    def _check_topic(self, topic: NewTopic, created: Created, taken: _ExistingTopics) -> None:
        """Run all checks and choose placement and configs; an error is set in `created`."""
        try:
            self._check_request(topic)
            created.placement = self._choose_placement(topic)
            _check_existing_names(topic.name, taken)
            if topic.placement is not None:
                _check_assignment(topic.placement)
            created.configs = self._check_configs(topic)
            self._check_policy(topic, created)
        except Refusal as refusal:
            created.error, created.message = refusal.code, refusal.text

    async def _write_topics(self, wanted: Sequence[TopicToCreate], made: Mapping[str, Created]) -> None:
        """Write checked topics to ZooKeeper; errors are set in the results."""
        try:
            refused: Mapping[str, KlammError] = await self._store().create_topics(wanted) if wanted else {}
        except ZkError as error:
            refused = {topic.name: error for topic in wanted}
        for topic in wanted:
            if (why := refused.get(topic.name)) is None:
                log.info("topic created", topic=topic.name, partitions=len(topic.assignment))
            else:
                made[topic.name].error, made[topic.name].message = _write_error(why)

    async def create_on_first_use(self, name: str) -> ErrorCode:
        """Auto-create a topic that Metadata asks for.

        Returns the error to answer. Source: AutoTopicCreationManager.scala.
        """
        if name_error(name):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if name in self._under_way:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self._under_way.add(name)
        try:
            created = await self.create(self._auto_created_topic(name))
        finally:
            self._under_way.discard(name)
        if created.error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT):
            return ErrorCode.LEADER_NOT_AVAILABLE
        if name in INTERNAL_TOPICS and self._reported.get(name) != created.message:
            self._reported[name] = created.message
            log.error("cannot create an internal topic; clients wait for it", topic=name, reason=created.message)
        return created.error

    def _auto_created_topic(self, name: str) -> NewTopic:
        """The topic that first use creates: internal topics have their own partition counts and configs."""
        config = self._config
        configs: list[tuple[str, str]] = []
        if name in INTERNAL_TOPICS:
            configs.append(("cleanup.policy", "compact"))
        match name:
            case "__consumer_offsets":
                shape = (config.offsets_topic_num_partitions, config.offsets_topic_replication_factor)
                configs += [
                    ("compression.type", "producer"),
                    ("segment.bytes", str(config.offsets_topic_segment_bytes)),
                ]
            case "__transaction_state":
                shape = (config.transaction_state_log_num_partitions, config.transaction_state_log_replication_factor)
                configs += [
                    ("compression.type", "uncompressed"),
                    ("min.insync.replicas", str(config.transaction_state_log_min_isr)),
                    ("segment.bytes", str(config.transaction_state_log_segment_bytes)),
                    ("unclean.leader.election.enable", "false"),
                ]
            case _:
                shape = (USE_DEFAULT, USE_DEFAULT)
        return NewTopic(name, *shape, configs=configs)

    def _check_request(self, topic: NewTopic) -> None:
        """Raise Refusal where the request is invalid by itself, or the metadata cache has the topic."""
        if topic.name == CLUSTER_METADATA_TOPIC:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {topic.name} is prohibited.")
        if self._cache.has_topic(topic.name):
            raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
        empty = [name for name, value in topic.configs if value is None]
        if empty:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(empty)}")
        has_counts = topic.partitions != USE_DEFAULT or topic.replication_factor != USE_DEFAULT
        if topic.placement is not None and has_counts:
            text = "the topic has both partition counts and replica assignments. Send only one of them."
            raise Refusal(ErrorCode.INVALID_REQUEST, text)

    def _choose_placement(self, topic: NewTopic) -> Placement:
        """The client's assignment, or one over the live brokers. Raises Refusal."""
        if topic.placement is not None:
            return dict(topic.placement)
        partitions = self._config.num_partitions if topic.partitions == USE_DEFAULT else topic.partitions
        factor = topic.replication_factor
        if factor == USE_DEFAULT:
            factor = self._config.default_replication_factor
        if partitions <= 0:
            raise Refusal(
                ErrorCode.INVALID_PARTITIONS, f"The number of partitions is {partitions}. Ask for at least 1."
            )
        if partitions > MAX_PARTITIONS:
            raise Refusal(ErrorCode.INVALID_PARTITIONS, too_many_partitions_text(partitions))
        if factor <= 0:
            raise Refusal(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is {factor}. Ask for at least 1."
            )
        brokers = eligible_racks(self._cache.brokers.values(), self._config.klamm_controller_only_brokers)
        try:
            return place_replicas(brokers, partitions, factor, self._randomness.stream("placement"))
        except PlacementRefused as error:
            raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, str(error)) from None

    def _check_configs(self, topic: NewTopic) -> dict[str, str]:
        """The configs as a dict. Raises Refusal where a key is unknown or a value invalid."""
        configs = {name: value for name, value in topic.configs if value is not None}
        try:
            TopicConfig.parse(configs, self._config.given)
        except InvalidConfig as error:
            raise Refusal(ErrorCode.INVALID_CONFIG, str(error)) from None
        return configs

    def _check_policy(self, topic: NewTopic, created: Created) -> None:
        """Raise Refusal where the configured create.topic.policy.class.name rejects the topic."""
        if self._policy is None:
            return
        if topic.placement is None:
            requested = TopicAsked(
                topic.name, len(created.placement), len(created.placement[0]), None, dict(created.configs)
            )
        else:
            requested = TopicAsked(topic.name, None, None, created.placement, dict(created.configs))
        try:
            self._policy.validate(requested)
        except PolicyViolation as violation:
            raise Refusal(ErrorCode.POLICY_VIOLATION, str(violation)) from None
        except Exception as mistake:
            raise Refusal(*policy_failure(KEY, topic.name, mistake)) from mistake


def _write_error(error: KlammError) -> tuple[ErrorCode, str]:
    """The error code and text for a topic that ZooKeeper did not store."""
    if isinstance(error, TopicExists):
        return ErrorCode.TOPIC_ALREADY_EXISTS, str(error)
    code = zookeeper_error_code(error) if isinstance(error, ZkError) else ErrorCode.UNKNOWN_SERVER_ERROR
    return code, f"The topic was not written to ZooKeeper: {error}. Try again."


def _check_existing_names(name: str, taken: _ExistingTopics) -> None:
    """Raise Refusal for an illegal name, an existing one, or one that collides with another topic's metrics."""
    if reason := name_error(name):
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if (why := taken.why.get(name)) is not None:
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, why)
    if has_collision_character(name) and (other := taken.others.get(name_in_metrics(name), name)) != name:
        raise Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topics: {other}, because metric names use '_' for '.'. Choose "
            "another name.",
        )


def _check_assignment(placement: Placement) -> None:
    """Raise Refusal, in Kafka's order of checks, for an invalid assignment of the client's."""

    def refuse(text: str) -> Refusal:
        """Return a Refusal with INVALID_REPLICA_ASSIGNMENT and this text."""
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)

    if len({len(replicas) for replicas in placement.values()}) > 1:
        raise refuse("All partitions should have the same number of replicas")
    for partition, replicas in placement.items():
        if not replicas or len(set(replicas)) != len(replicas):
            raise refuse(
                f"partition {partition}: the replicas {list(replicas)} are empty or name a broker twice. Name each "
                "broker once."
            )
        if min(replicas) < 0:
            raise refuse(
                f"partition {partition}: the replicas {list(replicas)} contain a negative broker id. Send ids of "
                "brokers."
            )
    if sorted(placement) != list(range(len(placement))):
        raise refuse(f"the partitions {sorted(placement)} must be numbered 0, 1, 2 and so on")


def zookeeper_error_code(error: ZkError) -> ErrorCode:
    """REQUEST_TIMED_OUT, which clients retry, where the change may have been made; else UNKNOWN_SERVER_ERROR."""
    is_lost = isinstance(error, ConnectionLoss | SessionExpired | SessionClosed)
    return ErrorCode.REQUEST_TIMED_OUT if is_lost else ErrorCode.UNKNOWN_SERVER_ERROR


def too_many_partitions_text(partitions: int) -> str:
    """The error text for a topic with too many partitions."""
    return f"{partitions} partitions do not fit into the znode of a topic. Ask for at most {MAX_PARTITIONS}."
