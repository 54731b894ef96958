"""Every invariant with its number, what it looks at, and the bugs of Kafka's history that it would have caught.

Its name is the function's, its sentence the first line of the function's docstring. To add one: write the function in
the module of its subject, put a row here, and break the code it watches once, to see it speak. Several may share a
number, which is that of the rule in the design they were drawn from.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from klamm.sim.history.trace import (
    ControllerElected,
    Event,
    EventEnded,
    LeaderAndIsrApplied,
    LogsDestroyed,
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
    controllers,
    destroyed_logs,
    epochs,
    isr,
    leaders,
    liveness,
    memory,
    orders,
    reassignment,
    request_contents,
    request_headers,
    topics,
)
from klamm.sim.invariants.views import Always, AtRest


class Row(NamedTuple):
    number: int
    check: Any
    sees: tuple[type[Any], ...] = ()
    """The events it is asked about; empty for one that is asked at rest."""
    tickets: str = ""

    @property
    def name(self) -> str:
        return str(self.check.__name__)

    @property
    def sentence(self) -> str:
        return str(self.check.__doc__).partition("\n")[0]


_MUTATION: Final = (TransactionCommitted,)
_WRITTEN: Final = (StateWritten,)
_SENT: Final = (RequestSent,)
_QUEUED: Final = (RequestQueued,)
_RECEIVED: Final = (RequestReceived,)
_DONE: Final = (EventEnded,)
_TOPIC: Final = (TopicWritten,)

ALWAYS: Final = (
    Row(0, controllers.no_mistakes_are_made, (UnexpectedError,)),
    Row(1, epochs.one_actor_per_epoch, _SENT, "KAFKA-532, KAFKA-1096"),
    Row(1, epochs.orders_come_from_who_was_elected, _RECEIVED, "KAFKA-532"),
    Row(2, epochs.epoch_counts_elections, (ControllerElected,)),
    Row(2, epochs.elections_raise_the_epoch, _MUTATION),
    Row(3, epochs.fenced_writes, _MUTATION, "KAFKA-6082, KAFKA-1096, KAFKA-4447"),
    Row(4, epochs.brokers_refuse_old_controllers, _RECEIVED, "KAFKA-532, KAFKA-1188"),
    Row(5, epochs.followed_epochs_are_monotone, _RECEIVED, "KAFKA-532"),
    Row(6, epochs.brokers_refuse_orders_for_earlier_runs, _RECEIVED, "KAFKA-7235"),
    Row(7, leaders.leader_epoch_is_monotone, _WRITTEN, "KIP-101"),
    Row(7, leaders.leader_epoch_rises_by_one, _WRITTEN),
    Row(8, leaders.one_leader_per_epoch, (StateWritten, RequestSent), "KAFKA-1188"),
    Row(8, leaders.replicas_follow_no_older_leader, (LeaderAndIsrApplied,), "KAFKA-1188"),
    Row(9, orders.orders_tell_what_was_written, _SENT, "KIP-497, KAFKA-9212"),
    Row(10, leaders.leader_is_in_sync, _WRITTEN),
    Row(11, isr.isr_is_never_empty, _WRITTEN, "KAFKA-708, KAFKA-5083"),
    Row(12, isr.isr_is_within_replicas, _WRITTEN, "KAFKA-9672, KAFKA-1097"),
    Row(13, leaders.elections_are_clean, _WRITTEN),
    Row(14, leaders.unclean_leaders_stand_alone, _WRITTEN, "KIP-704"),
    Row(14, leaders.recovery_ends_alone, _WRITTEN, "KAFKA-13587"),
    Row(15, leaders.leaders_are_chosen_by_the_rule, _WRITTEN, "KAFKA-3670"),
    Row(16, leaders.partitions_begin_at_zero, _WRITTEN),
    Row(17, orders.orders_follow_writes, _SENT),
    Row(18, orders.one_order_at_a_time, _SENT),
    Row(18, orders.orders_keep_their_turn, _SENT),
    Row(18, orders.metadata_does_not_go_back, _SENT),
    Row(19, orders.first_contact_is_whole, _RECEIVED, "KAFKA-831, KAFKA-4443"),
    Row(29, orders.only_older_stops_are_fenced, (RequestAnswered,), "KAFKA-13972"),
    Row(44, orders.accepted_orders_are_carried_out, (LeaderAndIsrApplied,), "KAFKA-1647"),
    Row(22, orders.stops_carry_epochs, (RequestQueued,), "KAFKA-9539, KIP-570"),
    Row(30, orders.leaders_are_told, _DONE, "KAFKA-7482, KAFKA-2300"),
    Row(20, controllers.partitions_move_legally, (PartitionMoved,)),
    Row(21, controllers.replicas_move_legally, (ReplicaMoved,)),
    Row(22, destroyed_logs.only_condemned_logs_are_destroyed, (LogsDestroyed,), "KAFKA-9539, KIP-570"),
    Row(23, topics.topics_go_after_their_replicas, _TOPIC, "KAFKA-9946"),
    Row(23, topics.requests_go_after_topics, _MUTATION, "KAFKA-1681"),
    Row(24, topics.topic_ids_are_never_reused, _TOPIC),
    Row(25, topics.topic_ids_are_immutable, (TopicWritten, RequestSent), "KAFKA-12835"),
    Row(26, topics.the_dying_do_not_grow, _WRITTEN, "KAFKA-6612"),
    Row(27, reassignment.assignments_are_written_first, _SENT, "KAFKA-9089"),
    Row(28, reassignment.reassignment_keeps_the_data, _TOPIC, "KAFKA-1097"),
    Row(28, reassignment.requests_stay_until_done, _MUTATION, "KAFKA-6193"),
    Row(41, reassignment.moves_leave_a_leader, _WRITTEN, "KAFKA-14808"),
    Row(30, brokers.shutdown_waits_for_leaders, _DONE),
    Row(30, brokers.shutdown_is_asked_by_this_run, _DONE, "KAFKA-7235"),
    Row(30, brokers.the_leaving_stay_out, _WRITTEN, "KAFKA-14140"),
    Row(31, alter_partition.alter_partition_follows_the_table, _DONE, "KAFKA-14144, KAFKA-14154, KAFKA-14140"),
    Row(31, alter_partition.refused_isr_changes_were_overtaken, _DONE, "KAFKA-14144"),
    Row(32, alter_partition.alter_partition_tells_the_truth, _DONE, "KAFKA-14154"),
    Row(33, controllers.the_resigned_send_nothing, _SENT, "KAFKA-4447, KAFKA-5310"),
    Row(33, memory.the_resigned_hold_nothing, (TermEnded,), "KAFKA-5310"),
    Row(33, memory.terms_begin_with_nothing, (TermBegan,), "KAFKA-2300, KAFKA-5310"),
    Row(33, controllers.nobody_is_forgotten, (RequestUnanswered,), "KAFKA-10193"),
    Row(33, controllers.the_inactive_refuse, _DONE, "KAFKA-10193"),
    Row(34, request_headers.broker_lists_are_as_read, _SENT, "KAFKA-3085, KAFKA-5502"),
    Row(34, request_headers.requests_name_the_run_of_their_broker, _SENT, "KAFKA-7235, KIP-380"),
    Row(9, request_contents.leader_and_isr_tells_the_newest, _QUEUED, "KAFKA-9212, KIP-704"),
    Row(27, request_contents.leader_and_isr_tells_the_assignment, _QUEUED, "KAFKA-9089"),
    Row(19, request_contents.new_replicas_are_told_so, _QUEUED),
    Row(19, request_contents.added_replicas_are_told_so, _DONE),
    Row(9, request_contents.metadata_tells_the_newest, _QUEUED, "KAFKA-9212"),
    Row(38, request_contents.offline_replicas_are_those_offline, _QUEUED),
    Row(22, request_contents.stops_say_what_is_meant, _QUEUED, "KIP-570"),
    Row(34, request_headers.listed_brokers_are_reached_as_registered, _SENT),
    Row(34, request_headers.leaders_are_listed, _SENT),
    Row(25, request_headers.topic_ids_are_carried, _SENT, "KAFKA-12835"),
    Row(31, answers.producer_ids_are_given_once, _DONE),
    Row(39, answers.elections_are_answered_truly, _DONE),
    Row(36, brokers.who_left_stays_away, (SessionReestablished,), "KAFKA-8121"),
    Row(37, brokers.one_process_per_id, _RECEIVED),
    Row(38, leaders.failed_logs_do_not_lead, _WRITTEN),
    Row(42, isr.the_dead_have_left, _DONE, "KAFKA-3143"),
    Row(42, isr.refusals_end_with_orders, (LeaderAndIsrApplied,), "KAFKA-12686, KAFKA-13254"),
    Row(39, leaders.preferred_leaders_are_fit, _WRITTEN, "KAFKA-9866"),
    Row(
        60,
        isr.leaders_count_all_members,
        (StateWritten, LeaderAndIsrApplied, ReplicaRolesChanged),
        "KAFKA-2721, KAFKA-12686, KIP-497",
    ),
    Row(62, isr.newcomers_have_followed, _WRITTEN, "KAFKA-7128, KAFKA-12751"),
)
"""After every event that they see."""

AT_REST: Final = (
    Row(40, liveness.one_controller_acts, (), "KAFKA-13407, KAFKA-4229"),
    Row(24, topics.no_topic_is_resurrected, (), "KAFKA-12835"),
    Row(29, reassignment.no_replica_is_left_behind, (), "KAFKA-13972"),
    Row(33, memory.the_inactive_are_inert, (), "KAFKA-4447, KAFKA-5310"),
    Row(34, memory.memory_equals_zookeeper, (), "KAFKA-849, KAFKA-9212"),
    Row(36, brokers.registrations_are_true, (), "KAFKA-1387, KAFKA-7165, KAFKA-14845"),
    Row(35, controllers.watches_are_set, (), "KAFKA-13461"),
    Row(38, controllers.notifications_are_taken_away),
    Row(41, liveness.every_partition_is_led, (), "KAFKA-3096, KAFKA-3143"),
    Row(42, liveness.isrs_are_whole, (), "KAFKA-12751, KAFKA-14144"),
    Row(43, topics.deletions_finish, (), "KAFKA-1681, KAFKA-6650"),
    Row(43, reassignment.reassignments_finish, (), "KAFKA-4214, KAFKA-9478"),
    Row(43, reassignment.preferred_elections_finish),
    Row(23, answers.deleted_topics_leave_nothing),
    Row(42, liveness.no_isr_change_is_pending, (), "KAFKA-12751, KAFKA-14144"),
    Row(39, liveness.preferred_leaders_return),
    Row(44, liveness.everybody_knows, (), "KAFKA-9212, KAFKA-7482"),
    Row(45, memory.no_event_waits, (), "KAFKA-4360, KAFKA-6517, KAFKA-6879"),
    Row(45, memory.every_request_was_delivered, (), "KAFKA-3916"),
)
"""Of nodes that are healed and had time: 46 is that these hold for them while another one stays broken."""


def by_event() -> Mapping[type[Event], tuple[tuple[str, Always], ...]]:
    """What to ask about each kind of event."""
    kinds = {kind: None for row in ALWAYS for kind in row.sees}
    return {kind: tuple((row.name, row.check) for row in ALWAYS if kind in row.sees) for kind in kinds}


def at_rest() -> tuple[tuple[str, AtRest], ...]:
    return tuple((row.name, row.check) for row in AT_REST)


_HEADING: Final = """# Invariants

What must hold in every simulated cluster. Each is a small function in `src/klamm/sim/invariants/`, stated anew and not
taken from the code it watches; [simulation.md](simulation.md) tells how to add one, [mutants.md](mutants.md) which of
the guards behind them were taken out to see them speak. Numbers are those of the rules they were drawn from, tickets
those of bugs that Apache Kafka had and they would have caught. Drawn by `make docs`.
"""
_ALWAYS: Final = "## After every event"
_AT_REST: Final = """## At rest

Asked of the nodes that are healed and had time; 46 is that all of it holds for them while others stay broken."""
_COLUMNS: Final = "| # | name | what must hold | sees | tickets |\n|---|---|---|---|---|"


def as_markdown() -> str:
    parts = (_HEADING, _ALWAYS, _table(ALWAYS), _AT_REST, _table(AT_REST))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _table(rows: Sequence[Row]) -> str:
    return "\n".join([_COLUMNS, *map(_row, sorted(rows, key=lambda row: row.number))])


def _row(row: Row) -> str:
    module = row.check.__module__.rpartition(".")[2]
    sees = ", ".join(kind.__name__ for kind in row.sees) or "the cluster"
    return f"| {row.number} | `{module}.{row.name}` | {row.sentence} | {sees} | {row.tickets} |"
