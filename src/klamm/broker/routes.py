"""Every API that this node serves, with its versions. ApiVersions answers from this list."""

from klamm.broker.api_rules import RULES
from klamm.broker.config_admin import ConfigAdmin
from klamm.broker.config_policy import load_alter_policy
from klamm.broker.dispatch import Route
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
    """The APIs that this node offers, each with its handler."""
    context = parts.context
    config, broker_id, cluster_id = context.config, context.broker_id, context.cluster_id
    dynamic, log_levels = context.dynamic, context.log_levels
    cache, replicas, controller = parts.cache, parts.replicas, parts.controller
    creation = TopicCreation(config, cache, context.store, context.world.randomness, load_create_policy(config))
    metadata = Metadata(cache, cluster_id, creation, config.auto_create_topics_enable, context.world.make_slices)
    growth = TopicGrowth(cache, context.store, config.klamm_controller_only_brokers)
    control = Control(cache, replicas, parts.throttles.topic_deleted, parts.groups.on_partitions_deleted)
    controller_apis = ControllerApis(controller)
    reassignments = Reassignments(controller)
    config_admin = ConfigAdmin(broker_id, dynamic, cache, lambda: context.store().configs, load_alter_policy(config))
    alter_configs = AlterConfigs(config_admin, LoggerAdmin(broker_id, log_levels))

    async def read_topic_config(topic: str) -> dict[str, str]:
        """Read the topic's own configs from ZooKeeper, without defaults."""
        return await context.store().read_config("topics", topic)

    groups = parts.groups
    members = GroupMembers(groups, allows_static=allows_static_members(config))
    group_admin = GroupAdmin(groups)
    group_offsets = GroupOffsetsApis(
        groups,
        cache,
        context.world.clock,
        lambda: ConsumerOffsets(context.store().client),
        metadata_max_bytes=config.offset_metadata_max_bytes,
        allows_static=allows_static_members(config),
    )
    transactions = Transactions(
        replicas, context.world.clock, config.request_timeout_ms, groups.on_transaction_completed
    )
    producer_transactions = ProducerTransactions(parts.transactions, groups, cache)
    transactional_offsets = TransactionalOffsets(groups, cache, context.world.clock, parts.verification)
    served = [
        Route(PRODUCE, Produce(cache, replicas, parts.verification).handle, is_hot=True, ends_with_client=True),
        Route(FETCH, parts.fetch.handle, is_hot=True, ends_with_client=True),
        Route(LIST_OFFSETS, ListOffsets(cache, replicas).handle),
        Route(METADATA, metadata.handle),
        Route(LEADER_AND_ISR, control.leader_and_isr),
        Route(STOP_REPLICA, control.stop_replica),
        Route(UPDATE_METADATA, control.update_metadata),
        Route(CONTROLLED_SHUTDOWN, controller_apis.controlled_shutdown),
        Route(OFFSET_COMMIT, group_offsets.commit),
        Route(OFFSET_FETCH, group_offsets.fetch),
        Route(
            FIND_COORDINATOR,
            FindCoordinator(cache, creation, groups.partition_for, parts.transactions.partition_for).handle,
        ),
        Route(JOIN_GROUP, members.join),
        Route(HEARTBEAT, members.heartbeat),
        Route(LEAVE_GROUP, members.leave),
        Route(SYNC_GROUP, members.sync),
        Route(DESCRIBE_GROUPS, group_admin.describe),
        Route(LIST_GROUPS, group_admin.list),
        Route(DELETE_GROUPS, group_admin.delete),
        Route(OFFSET_DELETE, group_offsets.delete),
        Route(CONSUMER_GROUP_HEARTBEAT, members.refuse_next_generation),
        Route(CONSUMER_GROUP_DESCRIBE, group_admin.refuse_next_generation),
        Route(CREATE_TOPICS, CreateTopics(cache, creation, dynamic.given, lambda: controller.is_active).handle),
        Route(DELETE_TOPICS, DeleteTopics(cache, context.store, controller, config.delete_topic_enable).handle),
        Route(DELETE_RECORDS, DeleteRecords(cache, replicas).handle, is_hot=True, ends_with_client=True),
        Route(CREATE_PARTITIONS, CreatePartitions(cache, growth, controller).handle),
        Route(INIT_PRODUCER_ID, InitProducerId(parts.producer_ids, parts.transactions).handle),
        Route(ADD_PARTITIONS_TO_TXN, producer_transactions.add_partitions),
        Route(ADD_OFFSETS_TO_TXN, producer_transactions.add_offsets),
        Route(END_TXN, producer_transactions.end),
        Route(TXN_OFFSET_COMMIT, transactional_offsets.commit),
        Route(DESCRIBE_TRANSACTIONS, producer_transactions.describe),
        Route(LIST_TRANSACTIONS, producer_transactions.list),
        Route(WRITE_TXN_MARKERS, transactions.write_markers),
        Route(DESCRIBE_PRODUCERS, transactions.describe_producers),
        Route(OFFSET_FOR_LEADER_EPOCH, LeaderEpochs(replicas).handle),
        Route(ELECT_LEADERS, ElectLeaders(cache, controller).handle),
        Route(ALTER_PARTITION_REASSIGNMENTS, reassignments.alter),
        Route(LIST_PARTITION_REASSIGNMENTS, reassignments.list),
        Route(DESCRIBE_CONFIGS, DescribeConfigs(broker_id, dynamic, cache, read_topic_config, log_levels).handle),
        Route(ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirs(replicas).handle),
        Route(DESCRIBE_LOG_DIRS, DescribeLogDirs(parts.logs, context.world.disk).handle),
        Route(UPDATE_FEATURES, UpdateFeatures(controller).handle),
        Route(ALTER_CONFIGS, alter_configs.replace),
        Route(INCREMENTAL_ALTER_CONFIGS, alter_configs.increment),
        Route(ALTER_PARTITION, controller_apis.alter_partition),
        Route(ENVELOPE, Envelope().handle),
        Route(DESCRIBE_CLUSTER, DescribeCluster(cache, cluster_id).handle),
        Route(ALLOCATE_PRODUCER_IDS, controller_apis.allocate_producer_ids),
    ]
    offered = [API_VERSIONS, *(route.offered for route in served)]
    served.append(Route(API_VERSIONS, ApiVersions(offered, parts.features).handle))
    return [route._replace(rules=RULES[route.offered.api_key]) for route in served]
