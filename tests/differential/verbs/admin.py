"""Verbs: requests of administrators to the node under test."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.differential import normalize
from tests.differential.testbed import Testbed

from klamm.model.errors import KlammError
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AllocateProducerIdsRequest,
    AlterPartitionReassignmentsRequest,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
    ElectLeadersRequestTopicPartitions,
    FeatureUpdateKey,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    UpdateFeaturesRequest,
)

LONG_MS = 10_000
PREFERRED, UNCLEAN = 0, 1
Partitions = Sequence[tuple[str, int]]
Targets = Mapping[tuple[str, int], Sequence[int] | None]


class AdminVerbs(Testbed):
    async def ask_for(
        self, what: str, api_key: ApiKey, version: int, message: Any, as_text: normalize.Normalizer
    ) -> Any:
        """Send a request to the node; the step's answer, or that the node closed the connection."""
        try:
            text = as_text(await self.ask(api_key, version, message))
        except KlammError:
            text = "it hung up"
        await self.end_step(what, text)
        return text

    # ---- topics

    async def create_topics(
        self,
        topics: Mapping[str, Sequence[Sequence[int]]],
        config: Mapping[str, str | None] | None = None,
        *,
        validate_only: bool = False,
        timeout_ms: int = LONG_MS,
        version: int = 7,
    ) -> Any:
        """By name, each partition's replicas."""
        configs = [CreatableTopicConfig(name, value) for name, value in (config or {}).items()]
        asked = [
            CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(i, tuple(replicas)) for i, replicas in enumerate(assignment)],
                configs=configs,
            )
            for name, assignment in topics.items()
        ]
        options = f"{f' with {dict(config)}' if config else ''}{' validate only' if validate_only else ''}"
        return await self.ask_for(
            f"ask v{version} to create {dict(topics)}{options}{_patience(timeout_ms)}",
            ApiKey.CREATE_TOPICS,
            version,
            CreateTopicsRequest(asked, timeout_ms, validate_only),
            normalize.create_topics_answer,
        )

    async def create_counted(
        self, name: str, partitions: int, replication_factor: int, *, validate_only: bool = True
    ) -> Any:
        """CreateTopics with a partition count; the placement is random, so usually only validated."""
        asked = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replication_factor, assignments=[], configs=[]
        )
        how = "validate only" if validate_only else "for real"
        return await self.ask_for(
            f"ask to create {name} with {partitions} partitions of {replication_factor}, {how}",
            ApiKey.CREATE_TOPICS,
            7,
            CreateTopicsRequest([asked], LONG_MS, validate_only),
            normalize.create_topics_answer,
        )

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignment: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        timeout_ms: int = LONG_MS,
    ) -> Any:
        """`assignment` is that of the new partitions alone."""
        lists = None if assignment is None else [CreatePartitionsAssignment(tuple(each)) for each in assignment]
        return await self.ask_for(
            f"ask for {count} partitions of {name}{'' if assignment is None else f', the new ones on {assignment}'}"
            f"{' validate only' if validate_only else ''}{_patience(timeout_ms)}",
            ApiKey.CREATE_PARTITIONS,
            3,
            CreatePartitionsRequest([CreatePartitionsTopic(name, count, lists)], timeout_ms, validate_only),
            normalize.create_partitions_answer,
        )

    async def delete_topics(self, *names: str, timeout_ms: int = LONG_MS, version: int = 6, by_id: bool = False) -> Any:
        states = [
            DeleteTopicState(None, self.topic_id(name)) if by_id else DeleteTopicState(name, normalize.NO_ID)
            for name in names
        ]
        request = (
            DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
            if version >= 6
            else DeleteTopicsRequest(topic_names=names, timeout_ms=timeout_ms)
        )
        return await self.ask_for(
            f"ask v{version} to delete {normalize.words(names)}{' by id' if by_id else ''}{_patience(timeout_ms)}",
            ApiKey.DELETE_TOPICS,
            version,
            request,
            lambda answer: normalize.delete_topics_answer(answer, self.topic_ids),
        )

    # ---- reassignment

    async def reassign(self, targets: Targets) -> Any:
        """Reassign each partition to these replicas; None cancels."""
        by_topic: dict[str, list[ReassignablePartition]] = {}
        for (topic, number), replicas in targets.items():
            listed = None if replicas is None else tuple(replicas)
            by_topic.setdefault(topic, []).append(ReassignablePartition(number, listed))
        topics = [ReassignableTopic(topic, partitions) for topic, partitions in by_topic.items()]
        return await self.ask_for(
            f"ask to reassign {_targets(targets)}",
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            0,
            AlterPartitionReassignmentsRequest(LONG_MS, topics),
            normalize.reassignment_answer,
        )

    async def list_reassignments(self, partitions: Partitions | None = None) -> Any:
        topics = None
        if partitions is not None:
            topics = [ListPartitionReassignmentsTopics(t, n) for t, n in _by_topic(partitions).items()]
        return await self.ask_for(
            f"list reassignments{'' if partitions is None else f' of {_named(partitions)}'}",
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            0,
            ListPartitionReassignmentsRequest(LONG_MS, topics),
            normalize.reassignment_list_answer,
        )

    # ---- elections

    async def elect(
        self, kind: int, partitions: Partitions | None, *, timeout_ms: int = LONG_MS, version: int = 2
    ) -> Any:
        """Elect leaders of these partitions, or of all if None."""
        topics = None
        if partitions is not None:
            topics = [ElectLeadersRequestTopicPartitions(t, n) for t, n in _by_topic(partitions).items()]
        request = (
            ElectLeadersRequest(kind, topics, timeout_ms)
            if version
            else ElectLeadersRequest(topic_partitions=topics, timeout_ms=timeout_ms)
        )
        word = "unclean" if kind == UNCLEAN else "preferred"
        which = "all partitions" if partitions is None else _named(partitions)
        return await self.ask_for(
            f"ask v{version} for {word} election of {which}{_patience(timeout_ms)}",
            ApiKey.ELECT_LEADERS,
            version,
            request,
            normalize.elections_answer,
        )

    # ---- the rest

    async def update_feature(self, feature: str, level: int, upgrade_type: int = 1) -> Any:
        """1 upgrades, 2 downgrades where that is safe, 3 downgrades in any case."""
        key = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)
        return await self.ask_for(
            f"ask to set feature {feature!r} to {level} by {upgrade_type}",
            ApiKey.UPDATE_FEATURES,
            1,
            UpdateFeaturesRequest(LONG_MS, [key], False),
            normalize.features_answer,
        )

    async def allocate_producer_ids(self, broker: int, *, stale_broker: bool = False) -> Any:
        request = AllocateProducerIdsRequest(broker, self.broker_epoch(broker, stale_broker))
        return await self.ask_for(
            f"{broker} asks for producer ids{', a stale broker' if stale_broker else ''}",
            ApiKey.ALLOCATE_PRODUCER_IDS,
            0,
            request,
            normalize.producer_ids_answer,
        )


def _by_topic(partitions: Partitions) -> dict[str, tuple[int, ...]]:
    """Partition numbers by topic."""
    topics: dict[str, tuple[int, ...]] = {}
    for topic, number in partitions:
        topics[topic] = (*topics.get(topic, ()), number)
    return topics


def _named(partitions: Partitions) -> str:
    """The partitions as text."""
    return normalize.words([f"{topic}-{number}" for topic, number in partitions]) or "nothing"


def _targets(targets: Targets) -> str:
    """The target replicas as text."""
    return normalize.words([f"{t}-{n} to {'what it was' if r is None else list(r)}" for (t, n), r in targets.items()])


def _patience(timeout_ms: int) -> str:
    """The timeout as text, if it is not the usual one."""
    return "" if timeout_ms == LONG_MS else f" within {timeout_ms} ms"
