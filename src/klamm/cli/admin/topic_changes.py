"""`klamm topics create`, `alter`, `delete`: asked of the controller; with `--wait`, until every broker knows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from klamm.broker.topic_names import name_error
from klamm.cli.admin.client import Admin, CannotAsk, code_name
from klamm.cli.admin.cluster import read_cluster
from klamm.cli.admin.refusals import Refusal
from klamm.cli.admin.topic_selection import literal_names, selected
from klamm.cli.output import ProgressLine
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

_BY_THE_BROKER: Final = -1
_DEFAULTS_SINCE: Final = 4
_STATES_SINCE: Final = 6
_LOOK_S: Final = 0.1
_FREE: Final = (ErrorCode.NONE, ErrorCode.POLICY_VIOLATION)  # a policy is asked last
Assignment = Sequence[tuple[BrokerId, ...]]


class NewTopic(NamedTuple):
    name: str
    partitions: int | None
    """None: as the brokers' `num.partitions` says."""
    replication_factor: int | None
    assignment: Assignment | None
    configs: Mapping[str, str]


async def create(admin: Admin, topic: NewTopic) -> Refusal | None:
    def request(version: int) -> CreateTopicsRequest:
        if version < _DEFAULTS_SINCE and topic.assignment is None and None in (topic[1], topic[2]):
            raise CannotAsk("these brokers have no defaults for it: name --partitions and --replication-factor")
        return CreateTopicsRequest(topics=[_creatable(topic)], timeout_ms=admin.left_ms, validate_only=False)

    answer = await admin.ask_controller(ApiKey.CREATE_TOPICS, request, repeatable=False)
    [result] = answer.topics
    return _refusal(result) if result.error_code else None


def _creatable(topic: NewTopic) -> CreatableTopic:
    configs = [CreatableTopicConfig(name, value) for name, value in topic.configs.items()]
    if topic.assignment is not None:
        given = [CreatableReplicaAssignment(index, replicas) for index, replicas in enumerate(topic.assignment)]
        return CreatableTopic(topic.name, _BY_THE_BROKER, _BY_THE_BROKER, given, configs)
    partitions = _BY_THE_BROKER if topic.partitions is None else topic.partitions
    copies = _BY_THE_BROKER if topic.replication_factor is None else topic.replication_factor
    return CreatableTopic(topic.name, partitions, copies, [], configs)


async def grow(admin: Admin, topics: Sequence[Topic], partitions: int, assignment: Assignment | None) -> list[Refusal]:
    """`assignment` speaks of all partitions, also of those that are there."""
    asked = [
        CreatePartitionsTopic(
            t.name,
            partitions,
            None if assignment is None else [CreatePartitionsAssignment(r) for r in assignment[len(t.partitions) :]],
        )
        for t in topics
    ]
    request = CreatePartitionsRequest(topics=asked, timeout_ms=admin.left_ms, validate_only=False)
    answer = await admin.ask_controller(ApiKey.CREATE_PARTITIONS, request, repeatable=False)
    return [_refusal(r) for r in answer.results if r.error_code]


async def delete(admin: Admin, names: Sequence[str]) -> list[Refusal]:
    def request(version: int) -> DeleteTopicsRequest:
        if version >= _STATES_SINCE:
            return DeleteTopicsRequest(topics=[DeleteTopicState(name=n) for n in names], timeout_ms=admin.left_ms)
        return DeleteTopicsRequest(topic_names=tuple(names), timeout_ms=admin.left_ms)

    answer = await admin.ask_controller(ApiKey.DELETE_TOPICS, request, repeatable=False)
    return [_refusal(r) for r in answer.responses if r.error_code]


def _refusal(result: Any) -> Refusal:
    return Refusal(f"topic {result.name}", result.error_code, getattr(result, "error_message", None))


async def find(admin: Admin, pattern: str) -> tuple[Cluster, list[str]]:
    """The topics that are meant, as far as there are any."""
    cluster = await read_cluster(admin, literal_names(pattern))
    return cluster, selected(cluster, pattern)


async def find_deletable(admin: Admin, pattern: str) -> list[str]:
    """What `find` finds, and those named in full that ZooKeeper holds though no broker has metadata of them.

    Such a topic never had a leader: all its replicas were away when it was created.
    """
    cluster, names = await find(admin, pattern)
    named = {part.strip() for part in pattern.split(",")}
    unknown = sorted(name for name in named - cluster.topics.keys() if name_error(name) is None)
    codes = await _could_create(admin, unknown) if unknown else {}
    return sorted({*names, *(name for name, code in codes.items() if code == ErrorCode.TOPIC_ALREADY_EXISTS)})


async def _could_create(admin: Admin, names: Sequence[str]) -> dict[str, int]:
    """What stands against each name, as Kafka's codes.

    Brokers do not show ZooKeeper, but would refuse to create there what it holds; nothing is created for the question.
    """
    asked = [CreatableTopic(name, 1, 1, [], []) for name in names]
    request = CreateTopicsRequest(topics=asked, timeout_ms=admin.left_ms, validate_only=True)
    answer = await admin.ask_controller(ApiKey.CREATE_TOPICS, request)
    return {t.name: t.error_code for t in answer.topics}


def no_such_topic(pattern: str) -> Refusal:
    return Refusal(f"topic {pattern}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is none")


def has_leaders(names: Sequence[str], partitions: int | None) -> Callable[[Cluster], str | None]:
    """What is missing yet, as one broker knows it, until all are there and led; None when nothing is."""

    def missing(cluster: Cluster) -> str | None:
        for name in names:
            topic = cluster.topics.get(name)
            if topic is None or (partitions is not None and len(topic.partitions) < partitions):
                return f"{name} is not known yet"
            if leaderless := sum(p.leader < 0 for p in topic.partitions.values()):
                return f"{leaderless} partitions of {name} have no leader yet"
        return None

    return missing


def are_gone(names: Sequence[str]) -> Callable[[Cluster], str | None]:
    def missing(cluster: Cluster) -> str | None:
        left = [name for name in names if name in cluster.topics]
        return f"{len(left)} of {len(names)} topics are still there" if left else None

    return missing


async def wait_until(admin: Admin, names: Sequence[str], missing: Callable[[Cluster], str | None]) -> None:
    """Every living broker says so. Raises CannotAsk when time is over, with what is missing."""
    progress = ProgressLine()
    while True:
        await admin.look()
        for broker in sorted(admin.brokers):
            problem = missing(await read_cluster(admin, names, of=broker))
            if problem is not None:
                break
        else:
            progress.clear()
            return
        progress.show(f"{problem}; {admin.left_s:.0f} s left")
        if not await admin.pause(_LOOK_S):
            progress.clear()
            raise CannotAsk(f"not within the time allowed: {problem} (broker {broker}); --timeout gives it more")


async def wait_until_gone(admin: Admin, names: Sequence[str]) -> dict[str, str]:
    """No broker knows them, and ZooKeeper holds neither them nor the marks that ask for their deletion.

    For topics about which they do not say it: why not. Raises CannotAsk as `wait_until` does.
    """
    await wait_until(admin, names, are_gone(names))
    progress = ProgressLine()
    while True:
        codes = await _could_create(admin, names)
        held = [name for name, code in codes.items() if code == ErrorCode.TOPIC_ALREADY_EXISTS]
        if not held:
            progress.clear()
            return {name: code_name(code) for name, code in codes.items() if code not in _FREE}
        problem = f"ZooKeeper still holds znodes of {len(held)} of {len(names)} topics ({held[0]})"
        progress.show(f"{problem}; {admin.left_s:.0f} s left")
        if not await admin.pause(_LOOK_S):
            progress.clear()
            raise CannotAsk(
                f"not within the time allowed: {problem}, or they were created again; --timeout gives it more"
            )
