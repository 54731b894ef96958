"""Every invariant of this tier, numbered as the rules they were drawn from; see `sim/invariants/table.py`."""

from typing import Any, Final

from klamm.sim.cluster_tier.invariants import (
    bookkeeping,
    clients,
    compaction,
    deletions,
    directories,
    elections,
    groups,
    indexes,
    logs,
    requests,
    rest,
    shutdown,
    timing,
    transactions,
)
from klamm.sim.cluster_tier.trace import (
    Acknowledged,
    Assigned,
    CommitEnded,
    CommittedOffsetRead,
    CorruptPoll,
    Expired,
    LogReplaced,
    NodeStarted,
    Polled,
    PositionLost,
    PowerLost,
    SequenceRefused,
    TableRead,
    Truncated,
    WrittenAfterError,
)
from klamm.sim.history.trace import ControllerElected, StateWritten, TopicWritten, TransactionCommitted
from klamm.sim.invariants import epochs, isr, leaders, reassignment, topics
from klamm.sim.invariants.table import Row

OF_ZOOKEEPER: Final = (
    Row(2, epochs.epoch_counts_elections, (ControllerElected,)),
    Row(2, epochs.elections_raise_the_epoch, (TransactionCommitted,)),
    Row(3, epochs.fenced_writes, (TransactionCommitted,), tickets="KAFKA-6082, KAFKA-1096, KAFKA-4447"),
    Row(7, leaders.leader_epoch_is_monotone, (StateWritten,), tickets="KIP-101"),
    Row(7, leaders.leader_epoch_rises_by_one, (StateWritten,)),
    Row(8, leaders.one_leader_per_epoch, (StateWritten,)),
    Row(10, leaders.leader_is_in_sync, (StateWritten,)),
    Row(11, isr.isr_is_never_empty, (StateWritten,), tickets="KAFKA-708, KAFKA-5083"),
    Row(12, isr.isr_is_within_replicas, (StateWritten,), tickets="KAFKA-9672"),
    Row(14, leaders.recovering_leaders_are_alone_in_isr, (StateWritten,), tickets="KAFKA-13587"),
    Row(23, topics.deletion_requests_are_removed_after_topics, (TransactionCommitted,), tickets="KAFKA-1681"),
    Row(24, topics.topic_ids_are_never_reused, (TopicWritten,)),
    Row(25, topics.topic_ids_are_immutable, (TopicWritten,), tickets="KAFKA-12835"),
    Row(28, reassignment.replicas_leave_after_targets_are_in_sync, (TopicWritten,), tickets="KAFKA-1097"),
)
"""Asked with the history of ZooKeeper: the same functions as in the controllers' tier."""

ALWAYS: Final = (
    Row(13, elections.leaders_come_from_the_isr, (StateWritten,)),
    Row(49, clients.offsets_are_consistent, (Acknowledged, Polled)),
    Row(55, clients.sends_are_in_order, (Acknowledged,)),
    Row(74, logs.acknowledged_records_are_on_min_isr_disks, (Acknowledged,)),
    Row(74, logs.synced_records_are_on_devices, (Acknowledged,)),
    Row(71, clients.sequences_continue, (SequenceRefused,)),
    Row(51, clients.refused_records_are_never_read, (Polled,)),
    Row(51, transactions.only_committed_transactions_are_read, (Polled,), tickets="KAFKA-9807"),
    Row(51, transactions.fenced_producers_write_nothing, (Acknowledged,), tickets="KIP-890"),
    Row(53, clients.polls_skip_nothing, (Polled,)),
    Row(61, clients.polls_end_at_the_high_watermark, (Polled,)),
    Row(61, clients.high_watermark_is_monotone, (Polled,), tickets="KAFKA-13091"),
    Row(54, clients.positions_stay_valid, (PositionLost,)),
    Row(75, compaction.tables_are_up_to_date, (TableRead,), tickets="KIP-534"),
    Row(75, compaction.young_records_stay, (TableRead,), tickets="KIP-58"),
    Row(57, clients.committed_offsets_are_kept, (CommittedOffsetRead,)),
    Row(57, groups.partitions_have_one_owner, (Assigned,)),
    Row(57, groups.commits_of_former_generations_are_refused, (CommitEnded,)),
    Row(73, clients.only_whole_batches_are_served, (CorruptPoll,)),
    Row(
        58,
        logs.in_sync_replicas_have_what_is_committed,
        (StateWritten, Acknowledged, Polled),
        tickets="KIP-101, KIP-320",
    ),
    Row(62, logs.joining_replicas_have_the_leaders_epoch, (StateWritten,), tickets="KAFKA-7128"),
    Row(64, logs.committed_records_are_not_truncated, (Truncated,), tickets="KAFKA-1211, KAFKA-6361"),
    Row(68, logs.retention_keeps_what_is_not_replicated, (Expired,), tickets="KAFKA-5634"),
    Row(70, logs.recovery_points_are_on_the_device, (PowerLost,), tickets="KAFKA-10101"),
    Row(70, logs.recovery_keeps_what_was_written, (NodeStarted,), tickets="KAFKA-10471"),
    Row(77, deletions.nothing_else_is_deleted, (Polled, Expired), tickets="KIP-107"),
    Row(77, deletions.deleted_records_stay_deleted, (Polled,), tickets="KIP-107"),
    Row(77, deletions.records_of_earlier_topics_do_not_return, (Polled,), tickets="KAFKA-12835"),
    Row(82, timing.acknowledgements_are_prompt, (Acknowledged,)),
    Row(82, timing.polls_are_answered_in_time, (Polled,)),
    Row(76, directories.copies_are_complete, (LogReplaced,), tickets="KIP-113"),
    Row(76, directories.copies_are_on_the_device, (LogReplaced,)),
    Row(72, logs.nothing_is_appended_after_an_error, (WrittenAfterError,), tickets="KAFKA-10778"),
)
AT_REST: Final = (
    Row(45, rest.no_mistakes),
    Row(40, rest.one_controller_is_registered, (), tickets="KAFKA-13407"),
    Row(36, rest.every_node_is_registered),
    Row(41, rest.every_partition_is_led, (), tickets="KAFKA-3096"),
    Row(42, rest.isrs_are_whole, (), tickets="KAFKA-12751, KAFKA-14144"),
    Row(43, rest.nothing_is_pending, (), tickets="KAFKA-4214, KAFKA-6650"),
    Row(48, rest.acknowledged_records_are_read),
    Row(57, rest.groups_have_a_coordinator),
    Row(57, groups.every_partition_is_owned),
    Row(50, rest.idempotent_records_are_there_once),
    Row(69, transactions.no_transaction_stays_open, (), tickets="KIP-890"),
    Row(47, transactions.transactions_are_whole),
    Row(50, transactions.records_are_copied_once),
    Row(69, compaction.compacted_transactions_are_over, (), tickets="KAFKA-8522"),
    Row(48, compaction.newest_values_survive_compaction),
    Row(75, compaction.deleted_keys_stay_deleted),
    Row(75, compaction.tombstones_are_removed, (), tickets="KAFKA-8522, KIP-354"),
    Row(63, rest.every_replica_has_a_log),
    Row(63, rest.replicas_are_identical, (), tickets="KAFKA-6361"),
    Row(70, rest.logs_are_whole),
    Row(65, rest.epoch_files_agree_with_batches, (), tickets="KAFKA-7415, KAFKA-10432"),
    Row(78, indexes.indexes_agree_with_batches, (), tickets="KAFKA-16541"),
    Row(78, rest.offsets_by_time_are_right, (), tickets="KIP-33"),
    Row(66, rest.leader_epochs_are_fenced, (), tickets="KAFKA-7395"),
    Row(76, directories.moves_finish, (), tickets="KIP-113"),
    Row(76, directories.replicas_are_where_they_were_moved, (), tickets="KIP-113"),
    Row(24, rest.only_assigned_replicas_have_logs, (), tickets="KAFKA-13972"),
    Row(67, bookkeeping.followers_use_the_fetcher_of_the_hash),
    Row(80, bookkeeping.replica_metrics_match_zookeeper),
)


AFTER_REQUESTS: Final = (
    Row(82, requests.requests_are_answered_correctly),
    Row(82, requests.requests_are_answered_in_time),
)
"""Checked when requests have been sent to the cluster at rest."""
AFTER_STOP: Final = (
    Row(45, rest.no_mistakes),
    Row(83, shutdown.nodes_stop_in_time),
    Row(83, shutdown.directories_are_marked_clean),
    Row(83, shutdown.stopped_logs_are_on_the_device),
    Row(83, shutdown.recovery_points_are_log_ends, (), tickets="KAFKA-10471"),
    Row(83, shutdown.high_watermarks_are_stored),
    Row(83, shutdown.log_starts_are_stored),
    Row(83, shutdown.producers_are_stored),
    Row(78, indexes.indexes_agree_with_batches),
    Row(63, rest.replicas_are_identical),
    Row(76, directories.moves_finish),
)
"""Checked when all nodes have been stopped in order."""


def by_event(rows: tuple[Row, ...]) -> dict[type[Any], tuple[Row, ...]]:
    """The invariants to check after each kind of event."""
    kinds = {kind: None for row in rows for kind in row.sees}
    return {kind: tuple(row for row in rows if kind in row.sees) for kind in kinds}
