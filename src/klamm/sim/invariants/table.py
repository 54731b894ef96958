"""Every invariant with its number, what it looks at, and the bugs of Kafka's history that it would have caught.

Its name is the function's, its sentence the first line of the function's docstring. To add one: write the function in
the module of its subject, put a row here, and break the code it watches once, to see it speak. Several may share a
number, which is that of the rule in the design they were drawn from.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from klamm.sim.history.trace import (
    ConfigChangeEnded,
    ConfigsApplied,
    ContextRead,
    ControllerElected,
    Event,
    EventBegan,
    EventEnded,
    HandlerWaits,
    ImbalanceUnchecked,
    JournalWritten,
    LeaderAndIsrApplied,
    LogsDestroyed,
    NodeStopped,
    PartitionMoved,
    ReplicaMoved,
    ReplicaRolesChanged,
    RequestAnswered,
    RequestQueued,
    RequestReceived,
    RequestSent,
    RequestUnanswered,
    SessionReestablished,
    StateWritten,
    TermBegan,
    TermEnded,
    TopicWritten,
    TransactionCommitted,
    UnexpectedError,
)
from klamm.sim.invariants import (
    alter_partition,
    answers,
    brokers,
    config_changes,
    contexts,
    control_requests,
    controllers,
    destroyed_logs,
    epochs,
    indexes,
    isr,
    journals,
    leaders,
    liveness,
    memory,
    reassignment,
    rebalancing,
    request_contents,
    request_headers,
    topics,
)
from klamm.sim.invariants.views import Always, AtRest


class Row(NamedTuple):
    number: int
    check: Any
    sees: tuple[type[Any], ...] = ()
    """The events after which it is checked; empty for one that is checked at rest."""
    tickets: str = ""

    @property
    def name(self) -> str:
        """The name of the invariant: that of its function."""
        return str(self.check.__name__)

    @property
    def sentence(self) -> str:
        """The invariant in words: the first line of the function's docstring."""
        return str(self.check.__doc__).partition("\n")[0]


_MUTATION: Final = (TransactionCommitted,)
_WRITTEN: Final = (StateWritten,)
_SENT: Final = (RequestSent,)
_QUEUED: Final = (RequestQueued,)
_RECEIVED: Final = (RequestReceived,)
_DONE: Final = (EventEnded,)
_TOPIC: Final = (TopicWritten,)

ALWAYS: Final = (
    Row(0, controllers.controllers_have_no_unexpected_errors, (UnexpectedError,)),
    Row(1, epochs.senders_won_the_epoch_they_carry, _SENT, tickets="KAFKA-532, KAFKA-1096"),
    Row(1, epochs.received_requests_name_an_elected_sender, _RECEIVED, tickets="KAFKA-532"),
    Row(2, epochs.epoch_counts_elections, (ControllerElected,)),
    Row(2, epochs.elections_raise_the_epoch, _MUTATION),
    Row(3, epochs.fenced_writes, _MUTATION, tickets="KAFKA-6082, KAFKA-1096, KAFKA-4447"),
    Row(4, epochs.brokers_refuse_old_controllers, _RECEIVED, tickets="KAFKA-532, KAFKA-1188"),
    Row(5, epochs.accepted_controller_epochs_are_monotone, _RECEIVED, tickets="KAFKA-532"),
    Row(6, epochs.brokers_refuse_requests_for_earlier_registrations, _RECEIVED, tickets="KAFKA-7235"),
    Row(7, leaders.leader_epoch_is_monotone, _WRITTEN, tickets="KIP-101"),
    Row(7, leaders.leader_epoch_rises_by_one, _WRITTEN),
    Row(8, leaders.one_leader_per_epoch, (StateWritten, RequestSent), tickets="KAFKA-1188"),
    Row(8, leaders.leader_and_isr_keeps_the_newest_epoch, (LeaderAndIsrApplied,), tickets="KAFKA-1188"),
    Row(9, control_requests.requests_carry_written_states, _SENT, tickets="KIP-497, KAFKA-9212"),
    Row(10, leaders.leader_is_in_sync, _WRITTEN),
    Row(11, isr.isr_is_never_empty, _WRITTEN, tickets="KAFKA-708, KAFKA-5083"),
    Row(12, isr.isr_is_within_replicas, _WRITTEN, tickets="KAFKA-9672, KAFKA-1097"),
    Row(13, leaders.elections_are_clean, _WRITTEN),
    Row(14, leaders.unclean_leaders_are_alone_in_isr, _WRITTEN, tickets="KIP-704"),
    Row(14, leaders.recovering_leaders_are_alone_in_isr, _WRITTEN, tickets="KAFKA-13587"),
    Row(15, leaders.leaders_are_chosen_by_the_rule, _WRITTEN, tickets="KAFKA-3670"),
    Row(16, leaders.new_partitions_begin_at_epoch_zero, _WRITTEN),
    Row(17, control_requests.requests_follow_writes, _SENT),
    Row(18, control_requests.one_request_per_broker_at_a_time, _SENT),
    Row(18, control_requests.requests_keep_their_order, _SENT),
    Row(18, control_requests.metadata_does_not_go_back, _SENT),
    Row(19, control_requests.first_leader_and_isr_is_complete, _RECEIVED, tickets="KAFKA-831, KAFKA-4443"),
    Row(29, control_requests.only_outdated_stop_replica_is_fenced, (RequestAnswered,), tickets="KAFKA-13972"),
    Row(44, control_requests.accepted_leader_and_isr_is_applied, (LeaderAndIsrApplied,), tickets="KAFKA-1647"),
    Row(22, control_requests.stop_replica_carries_the_leader_epoch, (RequestQueued,), tickets="KAFKA-9539, KIP-570"),
    Row(30, control_requests.old_and_new_leaders_get_requests, _DONE, tickets="KAFKA-7482, KAFKA-2300"),
    Row(20, controllers.partitions_move_legally, (PartitionMoved,)),
    Row(21, controllers.replicas_move_legally, (ReplicaMoved,)),
    Row(21, controllers.live_replicas_begin_online, (ReplicaMoved,)),
    Row(22, destroyed_logs.only_unneeded_logs_are_destroyed, (LogsDestroyed,), tickets="KAFKA-9539, KIP-570"),
    Row(23, topics.topics_are_deleted_after_their_replicas, _TOPIC, tickets="KAFKA-9946"),
    Row(23, topics.deletion_requests_are_removed_after_topics, _MUTATION, tickets="KAFKA-1681"),
    Row(24, topics.topic_ids_are_never_reused, _TOPIC),
    Row(25, topics.topic_ids_are_immutable, (TopicWritten, RequestSent), tickets="KAFKA-12835"),
    Row(26, topics.topics_being_deleted_get_no_partitions, _WRITTEN, tickets="KAFKA-6612"),
    Row(27, reassignment.assignments_are_written_first, _SENT, tickets="KAFKA-9089"),
    Row(28, reassignment.replicas_leave_after_targets_are_in_sync, _TOPIC, tickets="KAFKA-1097"),
    Row(28, reassignment.reassignment_znode_stays_until_done, _MUTATION, tickets="KAFKA-6193"),
    Row(41, reassignment.requested_moves_keep_a_leader, _WRITTEN, tickets="KAFKA-14808"),
    Row(30, brokers.shutdown_waits_for_leaders, _DONE),
    Row(30, brokers.shutdown_requests_match_the_registration, _DONE, tickets="KAFKA-7235"),
    Row(30, brokers.leaving_brokers_join_no_isr, _WRITTEN, tickets="KAFKA-14140"),
    Row(31, alter_partition.alter_partition_follows_the_table, _DONE, tickets="KAFKA-14144, KAFKA-14154, KAFKA-14140"),
    Row(31, alter_partition.refused_isr_changes_lost_a_race, _DONE, tickets="KAFKA-14144"),
    Row(32, alter_partition.alter_partition_answers_match_zookeeper, _DONE, tickets="KAFKA-14154"),
    Row(33, controllers.resigned_controllers_send_no_requests, _SENT, tickets="KAFKA-4447, KAFKA-5310"),
    Row(33, memory.resigned_controllers_keep_no_state, (TermEnded,), tickets="KAFKA-5310"),
    Row(33, memory.terms_begin_without_earlier_state, (TermBegan,), tickets="KAFKA-2300, KAFKA-5310"),
    Row(34, contexts.new_controllers_have_read_everything, (ContextRead,), tickets="KAFKA-849"),
    Row(33, controllers.waiting_requests_are_answered_on_expiry, (RequestUnanswered,), tickets="KAFKA-10193"),
    Row(33, controllers.inactive_nodes_refuse_requests, _DONE, tickets="KAFKA-10193"),
    Row(34, request_headers.broker_lists_match_registrations, _SENT, tickets="KAFKA-3085, KAFKA-5502"),
    Row(34, request_headers.requests_carry_the_broker_epoch, _SENT, tickets="KAFKA-7235, KIP-380"),
    Row(9, request_contents.leader_and_isr_carries_the_newest_state, _QUEUED, tickets="KAFKA-9212, KIP-704"),
    Row(27, request_contents.leader_and_isr_carries_the_assignment, _QUEUED, tickets="KAFKA-9089"),
    Row(19, request_contents.is_new_marks_new_replicas, _QUEUED),
    Row(19, request_contents.is_new_marks_added_replicas, _DONE),
    Row(9, request_contents.metadata_carries_the_newest_state, _QUEUED, tickets="KAFKA-9212"),
    Row(38, request_contents.offline_replicas_are_listed, _QUEUED),
    Row(22, request_contents.stop_replica_deletes_and_fences_as_planned, _QUEUED, tickets="KIP-570"),
    Row(41, request_contents.replicas_leave_when_a_target_leads, _QUEUED, tickets="KAFKA-14808"),
    Row(34, request_headers.listed_endpoints_match_registrations, _SENT),
    Row(34, request_headers.leaders_are_listed, _SENT),
    Row(25, request_headers.topic_ids_are_sent, _SENT, tickets="KAFKA-12835"),
    Row(31, answers.producer_ids_are_given_once, _DONE),
    Row(31, answers.reassignment_answers_match_zookeeper, _DONE),
    Row(31, answers.feature_answers_match_zookeeper, _DONE),
    Row(39, answers.election_answers_match_zookeeper, _DONE),
    Row(36, memory.stopped_nodes_leave_no_task, (NodeStopped,)),
    Row(36, brokers.stopped_nodes_open_no_session, (SessionReestablished,), tickets="KAFKA-8121"),
    Row(37, brokers.one_process_per_id, _RECEIVED),
    Row(38, leaders.failed_logs_do_not_lead, _WRITTEN),
    Row(42, isr.dead_brokers_leave_isrs, _DONE, tickets="KAFKA-3143"),
    Row(
        42, isr.refused_isr_changes_wait_for_leader_and_isr, (LeaderAndIsrApplied,), tickets="KAFKA-12686, KAFKA-13254"
    ),
    Row(39, leaders.preferred_elections_choose_the_first_replica, _WRITTEN, tickets="KAFKA-9866"),
    Row(39, rebalancing.imbalance_is_checked_in_time, (ImbalanceUnchecked,)),
    Row(39, rebalancing.rebalancing_elects_preferred_replicas, _DONE),
    Row(
        60,
        isr.leaders_count_all_members,
        (StateWritten, LeaderAndIsrApplied, ReplicaRolesChanged),
        "KAFKA-2721, KAFKA-12686, KIP-497",
    ),
    Row(62, isr.new_isr_members_have_followed, _WRITTEN, tickets="KAFKA-7128, KAFKA-12751"),
    Row(44, config_changes.applied_configs_were_stored, (ConfigsApplied,)),
    Row(45, controllers.handlers_end_in_time, (HandlerWaits,), tickets="KAFKA-4360, KAFKA-6517, KAFKA-6879"),
    Row(45, controllers.retries_pause_longer_each_time, (EventBegan,)),
    Row(45, config_changes.config_changes_are_announced, (ConfigChangeEnded,)),
    Row(45, config_changes.notifications_stay_for_15_minutes, _MUTATION),
    Row(79, journals.what_happened_is_journalled, (EventBegan,)),
    Row(79, journals.requests_are_journalled, _SENT),
    Row(79, journals.journal_lines_are_true, (JournalWritten,)),
    Row(79, journals.journals_name_what_was_found, (JournalWritten,)),
    Row(79, journals.decisions_tell_what_they_were_made_from, (JournalWritten,)),
)
"""Checked after every event that they name."""

AT_REST: Final = (
    Row(40, liveness.one_controller_is_active, (), tickets="KAFKA-13407, KAFKA-4229"),
    Row(24, topics.deleted_topics_have_no_replicas, (), tickets="KAFKA-12835"),
    Row(29, reassignment.removed_replicas_are_deleted, (), tickets="KAFKA-13972"),
    Row(33, memory.inactive_controllers_do_nothing, (), tickets="KAFKA-4447, KAFKA-5310"),
    Row(34, memory.memory_equals_zookeeper, (), tickets="KAFKA-849, KAFKA-9212"),
    Row(34, indexes.indexes_follow_from_states, (), tickets="KAFKA-9212"),
    Row(34, contexts.standbys_follow_zookeeper),
    Row(81, indexes.standbys_have_a_mirror),
    Row(81, indexes.nodes_have_the_sessions_that_they_need),
    Row(80, indexes.metrics_match_zookeeper),
    Row(36, brokers.registrations_match_running_brokers, (), tickets="KAFKA-1387, KAFKA-7165, KAFKA-14845"),
    Row(35, controllers.watches_are_set, (), tickets="KAFKA-13461"),
    Row(38, controllers.notifications_are_deleted),
    Row(41, liveness.every_partition_is_led, (), tickets="KAFKA-3096, KAFKA-3143"),
    Row(42, liveness.isrs_are_whole, (), tickets="KAFKA-12751, KAFKA-14144"),
    Row(43, topics.deletions_finish, (), tickets="KAFKA-1681, KAFKA-6650"),
    Row(43, topics.pending_deletions_finish),
    Row(43, reassignment.reassignments_finish, (), tickets="KAFKA-4214, KAFKA-9478"),
    Row(43, reassignment.preferred_elections_finish),
    Row(23, answers.deleted_topics_leave_no_znodes),
    Row(42, liveness.no_isr_change_is_pending, (), tickets="KAFKA-12751, KAFKA-14144"),
    Row(39, liveness.preferred_leaders_return),
    Row(44, liveness.brokers_have_the_newest_state, (), tickets="KAFKA-9212, KAFKA-7482"),
    Row(44, liveness.brokers_have_the_assignment, (), tickets="KAFKA-9089"),
    Row(45, memory.no_event_waits, (), tickets="KAFKA-4360, KAFKA-6517, KAFKA-6879"),
    Row(45, memory.every_request_was_delivered, (), tickets="KAFKA-3916"),
    Row(44, config_changes.config_changes_are_applied),
    Row(45, config_changes.config_followers_are_up_to_date),
)
"""Checked on healed nodes after enough time; number 46 is that they are true while another node stays broken."""


def by_event() -> Mapping[type[Event], tuple[tuple[str, Always], ...]]:
    """The invariants to check after each kind of event."""
    kinds = {kind: None for row in ALWAYS for kind in row.sees}
    return {kind: tuple((row.name, row.check) for row in ALWAYS if kind in row.sees) for kind in kinds}


def at_rest() -> tuple[tuple[str, AtRest], ...]:
    """The invariants to check when the cluster is at rest."""
    return tuple((row.name, row.check) for row in AT_REST)


_HEADING: Final = """# Invariants

Conditions that must be true in every simulated cluster. Each is a small function in `src/klamm/sim/invariants/`,
written independently of the code that it checks. [simulation.md](simulation.md) says how to add one, and
[mutants.md](mutants.md) which guards were removed from the code to show that an invariant notices it. Invariants of
one subject share a number; the tickets are bugs of Apache Kafka that the invariant would have found. This page is
generated by `make docs`.
"""
_ALWAYS: Final = "## After every event"
_AT_REST: Final = """## At rest

Checked on healed nodes after enough time to recover. Number 46 is that all of these are true for the healed nodes while
other nodes stay broken."""
_COLUMNS: Final = "| # | name | what must be true | checked on | tickets |\n|---|---|---|---|---|"


def as_markdown() -> str:
    """The page of all invariants in Markdown, for `docs/invariants.md`."""
    parts = (_HEADING, _ALWAYS, _table(ALWAYS), _AT_REST, _table(AT_REST))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _table(rows: Sequence[Row]) -> str:
    """A Markdown table of these invariants, in order of their numbers."""
    return "\n".join([_COLUMNS, *map(_row, sorted(rows, key=lambda row: row.number))])


def _row(row: Row) -> str:
    """The row of an invariant in the Markdown table."""
    module = row.check.__module__.rpartition(".")[2]
    sees = ", ".join(kind.__name__ for kind in row.sees) or "the cluster"
    return f"| {row.number} | `{module}.{row.name}` | {row.sentence} | {sees} | {row.tickets} |"
