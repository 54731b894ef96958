"""Create, grow and delete topics; with `--wait`, wait until every broker knows the change."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from klamm.broker.topic_names import name_error
from klamm.cli.admin.client import Admin, BrokerNotAlive, CannotAsk
from klamm.cli.admin.cluster import read_cluster
from klamm.cli.admin.refusals import Refusal
from klamm.cli.admin.topic_selection import literal_names, select_topics
from klamm.cli.output import ProgressLine
from klamm.client.errors import code_name
from klamm.model.cluster import Cluster, Topic
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

_BROKER_DEFAULT: Final = -1
_DEFAULTS_SINCE_VERSION: Final = 4
_TOPIC_STATES_SINCE_VERSION: Final = 6
_POLL_S: Final = 0.1
_NAME_IS_FREE: Final = (ErrorCode.NONE, ErrorCode.POLICY_VIOLATION)  # the policy is checked last
Assignment = Sequence[tuple[BrokerId, ...]]


class NewTopic(NamedTuple):
    name: str
    partitions: int | None
    """None: `num.partitions` of the brokers."""
    replication_factor: int | None
    assignment: Assignment | None
    configs: Mapping[str, str]


async def create(admin: Admin, topic: NewTopic) -> Refusal | None:
    """Create a topic. Returns the error of the controller, None for success."""

    def request(version: int) -> CreateTopicsRequest:
        """Build the CreateTopics request for this version. Raises CannotAsk where it has no defaults for counts."""
        if version < _DEFAULTS_SINCE_VERSION and topic.assignment is None and None in (topic[1], topic[2]):
            raise CannotAsk(
                "These brokers do not support default values for topics. Add --partitions and --replication-factor."
            )
        return CreateTopicsRequest(topics=[_creatable_topic(topic)], timeout_ms=admin.left_ms, validate_only=False)

    answer = await admin.ask_controller(ApiKey.CREATE_TOPICS, request, repeatable=False)
    [result] = answer.topics
    return _topic_refusal(result) if result.error_code else None


def _creatable_topic(topic: NewTopic) -> CreatableTopic:
    """Return the topic in the form of the CreateTopics request; -1 asks for the broker's default."""
    configs = [CreatableTopicConfig(name, value) for name, value in topic.configs.items()]
    if topic.assignment is not None:
        given = [CreatableReplicaAssignment(index, replicas) for index, replicas in enumerate(topic.assignment)]
        return CreatableTopic(topic.name, _BROKER_DEFAULT, _BROKER_DEFAULT, given, configs)
    partitions = _BROKER_DEFAULT if topic.partitions is None else topic.partitions
    copies = _BROKER_DEFAULT if topic.replication_factor is None else topic.replication_factor
    return CreatableTopic(topic.name, partitions, copies, [], configs)


async def add_partitions(
    admin: Admin, topics: Sequence[Topic], partitions: int, assignment: Assignment | None
) -> list[Refusal]:
    """Increase the number of partitions to `partitions`.

    `assignment` lists the replicas of all, existing ones included.
    """
    topics_to_create = [
        CreatePartitionsTopic(
            t.name,
            partitions,
            None if assignment is None else [CreatePartitionsAssignment(r) for r in assignment[len(t.partitions) :]],
        )
        for t in topics
    ]
    request = CreatePartitionsRequest(topics=topics_to_create, timeout_ms=admin.left_ms, validate_only=False)
    answer = await admin.ask_controller(ApiKey.CREATE_PARTITIONS, request, repeatable=False)
    return [_topic_refusal(r) for r in answer.results if r.error_code]


async def delete(admin: Admin, names: Sequence[str]) -> list[Refusal]:
    """Request the deletion of these topics. Returns the errors of the controller."""

    def request(version: int) -> DeleteTopicsRequest:
        """Build the DeleteTopics request for this version."""
        if version >= _TOPIC_STATES_SINCE_VERSION:
            return DeleteTopicsRequest(topics=[DeleteTopicState(name=n) for n in names], timeout_ms=admin.left_ms)
        return DeleteTopicsRequest(topic_names=tuple(names), timeout_ms=admin.left_ms)

    answer = await admin.ask_controller(ApiKey.DELETE_TOPICS, request, repeatable=False)
    return [_topic_refusal(r) for r in answer.responses if r.error_code]


def _topic_refusal(result: Any) -> Refusal:
    """The error in the result of one topic."""
    return Refusal(f"topic {result.name}", result.error_code, getattr(result, "error_message", None))


async def find_topics(admin: Admin, pattern: str) -> tuple[Cluster, list[str]]:
    """The cluster, and the names of its topics that match."""
    cluster = await read_cluster(admin, literal_names(pattern))
    return cluster, select_topics(cluster, pattern)


async def find_deletable(admin: Admin, pattern: str) -> list[str]:
    """The topics that match, as in `find_topics`, and exact names that exist only in ZooKeeper.

    No broker has metadata of a topic that never had a leader: all its replicas were dead when it was created.
    """
    cluster, names = await find_topics(admin, pattern)
    named = {part.strip() for part in pattern.split(",")}
    unknown = sorted(name for name in named - cluster.topics.keys() if name_error(name) is None)
    codes = await creation_errors(admin, unknown) if unknown else {}
    return sorted({*names, *(name for name, code in codes.items() if code == ErrorCode.TOPIC_ALREADY_EXISTS)})


async def creation_errors(admin: Admin, names: Sequence[str]) -> dict[str, int]:
    """The error codes of a dry run that creates topics with these names, which shows the names that ZooKeeper has."""
    topics_to_create = [CreatableTopic(name, 1, 1, [], []) for name in names]
    request = CreateTopicsRequest(topics=topics_to_create, timeout_ms=admin.left_ms, validate_only=True)
    answer = await admin.ask_controller(ApiKey.CREATE_TOPICS, request)
    return {t.name: t.error_code for t in answer.topics}


def no_such_topic(pattern: str) -> Refusal:
    """The error for a pattern that matches no topic."""
    return Refusal(f"topic {pattern}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it does not exist")


def has_leaders(names: Sequence[str], partitions: int | None) -> Callable[[Cluster], str | None]:
    """Return a check of one broker's metadata.

    The check returns what is missing, or None once all partitions have leaders.
    """

    def missing_leaders(cluster: Cluster) -> str | None:
        """Describe the first topic that the cluster does not have yet, or that lacks leaders; None if all are ready."""
        for name in names:
            topic = cluster.topics.get(name)
            if topic is None or (partitions is not None and len(topic.partitions) < partitions):
                return f"{name} does not exist yet"
            if leaderless := sum(p.leader < 0 for p in topic.partitions.values()):
                return f"{leaderless} partitions of {name} have no leader yet"
        return None

    return missing_leaders


def are_gone(names: Sequence[str]) -> Callable[[Cluster], str | None]:
    """A check of one broker's metadata: it says how many of these topics still exist, None when none does."""

    def existing_topics(cluster: Cluster) -> str | None:
        """Describe how many of the topics still exist; None when none does."""
        left = [name for name in names if name in cluster.topics]
        return f"{len(left)} of {len(names)} topics still exist" if left else None

    return existing_topics


async def wait_until(admin: Admin, names: Sequence[str], missing: Callable[[Cluster], str | None]) -> None:
    """Repeat the check `missing` on all live brokers until nothing is missing on any.

    Raises CannotAsk at the timeout.
    """

    async def problem_of_a_broker() -> str | None:
        """Return what is missing on the first broker where anything is, with its id; None if nothing is."""
        await admin.look()
        for broker in sorted(admin.brokers):
            try:
                problem = missing(await read_cluster(admin, names, of=broker))
            except BrokerNotAlive as error:
                return str(error)
            if problem is not None:
                return f"{problem} (broker {broker})"
        return None

    await _wait_while(admin, "The change", problem_of_a_broker)


async def _wait_while(admin: Admin, what: str, find_problem: Callable[[], Awaitable[str | None]]) -> None:
    """Poll `find_problem` until it returns None, and show each problem as progress. Raises CannotAsk at the timeout.

    `what` begins the sentence of the error, for example "The deletion".
    """
    progress = ProgressLine()
    try:
        while (problem := await find_problem()) is not None:
            progress.show(f"{problem}; {admin.left_s:.0f} s left")
            if not await admin.pause(_POLL_S):
                raise CannotAsk(
                    f"{what} was not complete before the timeout: {problem}. Raise --timeout to wait longer."
                )
    finally:
        progress.clear()


async def wait_until_gone(admin: Admin, names: Sequence[str]) -> dict[str, str]:
    """Wait until no broker and no znode has these topics.

    Returns the topics whose deletion the brokers do not confirm, with the reason. Raises CannotAsk at the timeout.
    """
    await wait_until(admin, names, are_gone(names))
    codes: dict[str, int] = {}

    async def problem_of_zookeeper() -> str | None:
        """Ask which names are free; return which topics still have znodes, None if none has."""
        codes.update(await creation_errors(admin, names))
        held = [name for name, code in codes.items() if code == ErrorCode.TOPIC_ALREADY_EXISTS]
        if not held:
            return None
        return f"ZooKeeper has znodes of {len(held)} of {len(names)} topics ({held[0]}), or they were created again"

    await _wait_while(admin, "The deletion", problem_of_zookeeper)
    return {name: code_name(code) for name, code in codes.items() if code not in _NAME_IS_FREE}
