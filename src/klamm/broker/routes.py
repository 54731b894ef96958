"""Every API that this node serves, with its versions. ApiVersions answers from this list."""

from klamm.broker.api_rules import RULES
from klamm.broker.config_admin import ConfigAdmin
from klamm.broker.config_policy import load_alter_policy
from klamm.broker.dispatch import Pieces, Route
from klamm.broker.handlers.alter_configs import ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, AlterConfigs
from klamm.broker.handlers.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirs
from klamm.broker.handlers.api_versions import API_VERSIONS, ApiVersions
from klamm.broker.handlers.control import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Control
from klamm.broker.handlers.controller_apis import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    CONTROLLED_SHUTDOWN,
    ENVELOPE,
    ControllerApis,
    Envelope,
)
from klamm.broker.handlers.create_partitions import CREATE_PARTITIONS, CreatePartitions
from klamm.broker.handlers.create_topics import CREATE_TOPICS, CreateTopics
from klamm.broker.handlers.delete_records import DELETE_RECORDS, DeleteRecords
from klamm.broker.handlers.delete_topics import DELETE_TOPICS, DeleteTopics
from klamm.broker.handlers.describe_cluster import DESCRIBE_CLUSTER, DescribeCluster
from klamm.broker.handlers.describe_configs import DESCRIBE_CONFIGS, DescribeConfigs
from klamm.broker.handlers.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirs
from klamm.broker.handlers.elect_leaders import ELECT_LEADERS, ElectLeaders
from klamm.broker.handlers.fetch import FETCH
from klamm.broker.handlers.find_coordinator import FIND_COORDINATOR, FindCoordinator
from klamm.broker.handlers.group_admin import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    GroupAdmin,
)
from klamm.broker.handlers.group_offsets import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH, GroupOffsetsApis
from klamm.broker.handlers.groups import (
    CONSUMER_GROUP_HEARTBEAT,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    GroupMembers,
)
from klamm.broker.handlers.init_producer_id import INIT_PRODUCER_ID, InitProducerId
from klamm.broker.handlers.leader_epochs import OFFSET_FOR_LEADER_EPOCH, LeaderEpochs
from klamm.broker.handlers.list_offsets import LIST_OFFSETS, ListOffsets
from klamm.broker.handlers.metadata import METADATA, Metadata
from klamm.broker.handlers.produce import PRODUCE, Produce
from klamm.broker.handlers.producer_transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LIST_TRANSACTIONS,
    ProducerTransactions,
)
from klamm.broker.handlers.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    Reassignments,
)
from klamm.broker.handlers.transactional_offsets import TXN_OFFSET_COMMIT, TransactionalOffsets
from klamm.broker.handlers.transactions import DESCRIBE_PRODUCERS, WRITE_TXN_MARKERS, Transactions
from klamm.broker.handlers.update_features import UPDATE_FEATURES, UpdateFeatures
from klamm.broker.logger_admin import LoggerAdmin
from klamm.broker.parts import Parts
from klamm.broker.settings import allows_static_members
from klamm.broker.topic_creation import TopicCreation
from klamm.broker.topic_growth import TopicGrowth
from klamm.broker.topic_policy import load_create_policy
from klamm.zk.consumer_offsets import ConsumerOffsets


def routes(parts: Parts) -> list[Route]:
    """The APIs that this node offers, each with its handler and rules."""
    config, world = parts.context.config, parts.context.world
    creation = TopicCreation(config, parts.cache, parts.context.store, world.randomness, load_create_policy(config))
    served = [
        *_record_routes(parts),
        *_metadata_routes(parts, creation),
        *_topic_routes(parts, creation),
        *_group_routes(parts, creation),
        *_transaction_routes(parts),
        *_config_routes(parts),
        *_log_dir_routes(parts),
        *_control_routes(parts),
    ]
    offered = [API_VERSIONS, *(route.offered for route in served)]
    served.append(Route(API_VERSIONS, ApiVersions(offered, parts.features).handle))
    return [route._replace(rules=RULES[route.offered.api_key]) for route in served]


def _record_routes(parts: Parts) -> list[Route]:
    """The routes of the APIs that produce, fetch and delete records, and look up offsets and leader epochs."""
    cache, replicas = parts.cache, parts.replicas
    return [
        Route(
            PRODUCE,
            Produce(cache, replicas, parts.verification).handle,
            is_hot=True,
            ends_with_client=True,
            overlaps=True,
        ),
        Route(FETCH, parts.fetch.handle, is_hot=True, ends_with_client=True),
        Route(LIST_OFFSETS, ListOffsets(cache, replicas).handle),
        Route(DELETE_RECORDS, DeleteRecords(cache, replicas).handle, is_hot=True, ends_with_client=True),
        Route(
            OFFSET_FOR_LEADER_EPOCH,
            LeaderEpochs(replicas).handle,
            pieces=Pieces("topics", "topics", ("partitions", "partitions")),
        ),
    ]


def _metadata_routes(parts: Parts, creation: TopicCreation) -> list[Route]:
    """The routes of the APIs that describe topics and brokers."""
    context, cache = parts.context, parts.cache
    creates = context.config.auto_create_topics_enable
    metadata = Metadata(cache, context.cluster_id, creation, creates, context.world.make_slices)
    return [
        Route(METADATA, metadata.handle),
        Route(DESCRIBE_CLUSTER, DescribeCluster(cache, context.cluster_id).handle),
    ]


def _topic_routes(parts: Parts, creation: TopicCreation) -> list[Route]:
    """The routes of the APIs that create, enlarge and delete topics, elect leaders and reassign replicas."""
    context, cache, controller = parts.context, parts.cache, parts.controller
    config, dynamic = context.config, context.dynamic
    growth = TopicGrowth(cache, context.store, config.klamm_controller_only_brokers, context.world.make_slices)
    reassignments = Reassignments(controller)
    return [
        Route(CREATE_TOPICS, CreateTopics(cache, creation, dynamic.given, lambda: controller.is_active).handle),
        Route(DELETE_TOPICS, DeleteTopics(cache, context.store, controller, config.delete_topic_enable).handle),
        Route(CREATE_PARTITIONS, CreatePartitions(cache, growth, controller).handle),
        Route(ELECT_LEADERS, ElectLeaders(cache, controller).handle),
        Route(ALTER_PARTITION_REASSIGNMENTS, reassignments.alter),
        Route(LIST_PARTITION_REASSIGNMENTS, reassignments.list),
    ]


def _group_routes(parts: Parts, creation: TopicCreation) -> list[Route]:
    """The routes of the APIs that find coordinators and serve consumer groups and their offsets."""
    context, cache, groups = parts.context, parts.cache, parts.groups
    allows_static = allows_static_members(context.config)
    members = GroupMembers(groups, allows_static=allows_static)
    admin = GroupAdmin(groups)
    offsets = GroupOffsetsApis(
        groups,
        cache,
        context.world.clock,
        lambda: ConsumerOffsets(context.store().client),
        metadata_max_bytes=context.config.offset_metadata_max_bytes,
        allows_static=allows_static,
    )
    coordinators = FindCoordinator(cache, creation, groups.partition_for, parts.transactions.partition_for)
    return [
        Route(FIND_COORDINATOR, coordinators.handle, pieces=Pieces("coordinator_keys", "coordinators")),
        Route(JOIN_GROUP, members.join),
        Route(HEARTBEAT, members.heartbeat),
        Route(LEAVE_GROUP, members.leave, pieces=Pieces("members", "members")),
        Route(SYNC_GROUP, members.sync),
        Route(OFFSET_COMMIT, offsets.commit),
        Route(OFFSET_FETCH, offsets.fetch, pieces=Pieces("groups", "groups")),
        Route(OFFSET_DELETE, offsets.delete),
        Route(DESCRIBE_GROUPS, admin.describe, pieces=Pieces("groups", "groups")),
        Route(LIST_GROUPS, admin.list),
        Route(DELETE_GROUPS, admin.delete),
        Route(CONSUMER_GROUP_HEARTBEAT, members.refuse_next_generation),
        Route(CONSUMER_GROUP_DESCRIBE, admin.refuse_next_generation, pieces=Pieces("group_ids", "groups")),
    ]


def _transaction_routes(parts: Parts) -> list[Route]:
    """The routes of the APIs for producers' transactions, and for the markers that end them."""
    context, cache, groups = parts.context, parts.cache, parts.groups
    clock = context.world.clock
    timeout_ms = context.config.request_timeout_ms
    markers = Transactions(parts.replicas, clock, timeout_ms, groups.on_transaction_completed)
    producers = ProducerTransactions(parts.transactions, groups, cache)
    offsets = TransactionalOffsets(groups, cache, clock, parts.verification)
    return [
        Route(INIT_PRODUCER_ID, InitProducerId(parts.producer_ids, parts.transactions).handle),
        Route(ADD_PARTITIONS_TO_TXN, producers.add_partitions),
        Route(ADD_OFFSETS_TO_TXN, producers.add_offsets),
        Route(END_TXN, producers.end),
        Route(TXN_OFFSET_COMMIT, offsets.commit),
        Route(DESCRIBE_TRANSACTIONS, producers.describe, pieces=Pieces("transactional_ids", "transaction_states")),
        Route(LIST_TRANSACTIONS, producers.list),
        Route(WRITE_TXN_MARKERS, markers.write_markers),
        Route(
            DESCRIBE_PRODUCERS,
            markers.describe_producers,
            pieces=Pieces("topics", "topics", ("partition_indexes", "partitions")),
        ),
    ]


def _config_routes(parts: Parts) -> list[Route]:
    """The routes of the APIs that describe and change configs and features."""
    context, cache = parts.context, parts.cache
    broker_id, dynamic, log_levels = context.broker_id, context.dynamic, context.log_levels

    async def read_topic_config(topic: str) -> dict[str, str]:
        """Read the topic's own configs from ZooKeeper, without defaults."""
        return await context.store().read_config("topics", topic)

    policy = load_alter_policy(context.config)
    admin = ConfigAdmin(
        broker_id, dynamic, cache, lambda: context.store().configs, policy, context.world.request_slices
    )
    alter_configs = AlterConfigs(admin, LoggerAdmin(broker_id, log_levels))
    return [
        Route(DESCRIBE_CONFIGS, DescribeConfigs(broker_id, dynamic, cache, read_topic_config, log_levels).handle),
        Route(ALTER_CONFIGS, alter_configs.replace),
        Route(INCREMENTAL_ALTER_CONFIGS, alter_configs.increment),
        Route(UPDATE_FEATURES, UpdateFeatures(parts.controller).handle),
    ]


def _log_dir_routes(parts: Parts) -> list[Route]:
    """The routes of the APIs that describe log directories and move replicas between them."""
    return [
        Route(ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirs(parts.replicas).handle),
        Route(DESCRIBE_LOG_DIRS, DescribeLogDirs(parts.logs, parts.context.world.disk).handle),
    ]


def _control_routes(parts: Parts) -> list[Route]:
    """The routes of the APIs that the controller calls on brokers, and that brokers call on the controller."""
    control = Control(parts.cache, parts.replicas, parts.throttles.topic_deleted, parts.groups.on_partitions_deleted)
    controller = ControllerApis(parts.controller)
    return [
        Route(LEADER_AND_ISR, control.leader_and_isr),
        Route(STOP_REPLICA, control.stop_replica),
        Route(UPDATE_METADATA, control.update_metadata),
        Route(CONTROLLED_SHUTDOWN, controller.controlled_shutdown),
        Route(ALTER_PARTITION, controller.alter_partition),
        Route(ALLOCATE_PRODUCER_IDS, controller.allocate_producer_ids),
        Route(ENVELOPE, Envelope().handle),
    ]
