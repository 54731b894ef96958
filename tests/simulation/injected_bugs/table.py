"""Guards of the controller, each taken out by a function: the simulation must see every one missing.

What it cannot see missing, it does not prove. The numbers are those of the catalogue of historic bugs, `expected` those
of the invariants (`klamm.sim.invariants.table`) that should speak. A mutant patches like a test's `monkeypatch`; where
one guard hides behind another, both go.
"""

from typing import NamedTuple

from tests.simulation.injected_bugs.controllership import (
    callers_forgotten,
    context_survives_the_term,
    elected_means_nothing_to_do,
    epoch_read_before_each_write,
    expiry_waits_for_its_turn,
    resigned_without_a_watch,
    the_deposed_go_on,
    topics_unwatched,
    writes_unbound,
)
from tests.simulation.injected_bugs.failover import (
    deletions_forgotten_in_failover,
    offline_replicas_left_alone,
    offline_replicas_left_to_nobody,
    orders_before_metadata,
    reassignments_forgotten_in_failover,
    states_not_loaded,
)
from tests.simulation.injected_bugs.leaders_and_isrs import (
    dead_leaders_stay,
    elected_in_isr_order,
    isr_emptied,
    own_lost_creation_not_recognised,
    own_lost_isr_change_not_recognised,
    own_lost_write_not_recognised,
    preferred_without_being_in_sync,
    removed_replicas_may_return,
    retries_are_fenced,
    stops_without_epochs,
    the_dead_may_enter,
    the_leaving_go_at_once,
    the_leaving_not_told,
    the_outdated_may_bring_back_the_removed,
    zombies_say_no,
)
from tests.simulation.injected_bugs.mutant import Mutant, together
from tests.simulation.injected_bugs.reassignments import (
    arrivals_unnoticed,
    bumped_epoch_not_remembered,
    isr_changes_unnoticed,
    joined_is_enough,
    leader_dropped_by_override,
    memory_before_znode,
    moved_replicas_not_written_down,
    moves_to_the_absent_forgotten,
    request_removed_at_once,
    unknown_entries_stay,
)
from tests.simulation.injected_bugs.registrations import (
    bounces_unseen,
    brokers_as_they_were,
    closing_sessions_reconnect,
    earlier_runs_may_ask,
    newcomers_told_half,
    old_registration_is_fatal,
    only_learned_sessions_and_once,
    only_the_last_session_counts,
    registered_once,
    renewal_outlives_the_end,
    sessions_after_the_end,
)
from tests.simulation.injected_bugs.requests import (
    adding_left_out,
    always_new,
    brokers_at_a_wrong_host,
    deciding_epoch_left_out,
    epochs_of_earlier_runs,
    going_topics_look_alive,
    ids_left_out,
    leaders_at_a_wrong_port,
    leaders_unlisted,
    metadata_is_one_version_behind,
    metadata_lists_the_isr_as_replicas,
    never_new,
    nobody_is_offline,
    recovery_left_out,
    removing_left_out,
    replicas_in_the_order_of_ids,
    stops_above_all_epochs,
    stops_delete,
    stops_in_a_later_epoch,
    the_leaving_are_online,
)
from tests.simulation.injected_bugs.simulated_brokers import (
    brokers_follow_anyone,
    brokers_take_what_was_not_meant_for_them,
    epochs_remembered_before_the_work,
    no_replica_without_a_leader,
    orders_are_taken_twice,
    orders_of_old_leader_epochs_are_taken,
    proposals_survive_orders,
    refused_for_good,
    stops_need_a_newer_epoch,
)
from tests.simulation.injected_bugs.topics import (
    deletions_do_not_resume,
    deletions_do_not_wait,
    growth_while_dying,
    ids_lost_when_rewritten,
    leaderless_replicas_stay_online,
)

MUTANTS = (
    Mutant("1", "KAFKA-532", "brokers follow any controller epoch", brokers_follow_anyone, (4, 5)),
    Mutant("2", "KAFKA-708", "the last member leaves the ISR", isr_emptied, (11,)),
    Mutant("3", "KAFKA-831", "a started broker is told half of its partitions", newcomers_told_half, (19, 30, 44)),
    Mutant("4", "KAFKA-849", "failover does not load the states", states_not_loaded, (34, 16, 19, 44)),
    Mutant("5", "KAFKA-992, 1387", "an own old registration is a foreign one, for good", registered_once, (36,)),
    Mutant("6", "KAFKA-1096", "the epoch is read anew before each write", epoch_read_before_each_write, (1, 3)),
    Mutant("7", "KAFKA-1097", "AlterPartition takes who is no replica", removed_replicas_may_return, (12, 31)),
    Mutant("7a", "KAFKA-1097", "the same, of outdated leaders, too", the_outdated_may_bring_back_the_removed, (12, 31)),
    Mutant(
        "8", "KAFKA-1188", "brokers take orders of older leader epochs", orders_of_old_leader_epochs_are_taken, (8, 44)
    ),
    Mutant("9", "KAFKA-1382", "own writes whose answer was lost are foreign", own_lost_write_not_recognised, (31, 42)),
    Mutant("9a", "KAFKA-1382", "the same, of ISR changes alone", own_lost_isr_change_not_recognised, (31, 42)),
    Mutant("9b", "KAFKA-1382", "the same, of first states", own_lost_creation_not_recognised, (34, 41, 19)),
    Mutant("10", "KAFKA-1647", "brokers make no replica without a leader", no_replica_without_a_leader, (44,)),
    Mutant("11", "KAFKA-1681", "failover forgets deletions", deletions_forgotten_in_failover, (43,)),
    Mutant("12", "KAFKA-2300, 5310", "the context survives the term", context_survives_the_term, (33,)),
    Mutant("13", "KAFKA-2721", "brokers take an order twice", orders_are_taken_twice, (60,)),
    Mutant("14", "KAFKA-3085, 5502", "brokers as listed when the watch fired", brokers_as_they_were, (34, 36)),
    Mutant("15", "KAFKA-3096", "a dead leader stays leader", dead_leaders_stay, (10, 41)),
    Mutant("16", "KAFKA-3143", "failover takes the dead out of no ISR", offline_replicas_left_alone, (42,)),
    Mutant("16a", "KAFKA-3143", "neither failover nor leaders do", offline_replicas_left_to_nobody, (42,)),
    Mutant("17", "KAFKA-4214", "moves do not resume when brokers come", arrivals_unnoticed, (43,)),
    Mutant("17a", "KAFKA-4214", "moves do not resume after failover", reassignments_forgotten_in_failover, (43,)),
    Mutant("17b", "KAFKA-4214", "failover drops moves to the absent", moves_to_the_absent_forgotten, (43,)),
    Mutant("17c", "KAFKA-4214", "moves do not go on when ISRs change", isr_changes_unnoticed, (43,)),
    Mutant(
        "17+17c",
        "KAFKA-4214",
        "neither of these sets moves going",
        together(arrivals_unnoticed, isr_changes_unnoticed),
        (43,),
    ),
    Mutant("18", "KAFKA-4229, 6879", "expiry waits for the next session", expiry_waits_for_its_turn, (45, 40, 36)),
    Mutant("19", "KAFKA-4443", "no broker list before the first orders", orders_before_metadata, (19,)),
    Mutant("20", "KAFKA-4447", "the deposed handle events", the_deposed_go_on, (33, 3)),
    Mutant("21", "KAFKA-6082", "writes are not bound to the epoch", writes_unbound, (3,)),
    Mutant("22", "KAFKA-6193", "the request to move goes when it is queued", request_removed_at_once, (28,)),
    Mutant("23", "KAFKA-6612", "a topic grows while it is deleted", growth_while_dying, (26,)),
    Mutant("23a", "KAFKA-6650", "leaderless replicas do not go offline", leaderless_replicas_stay_online, (43, 21)),
    Mutant("24", "KAFKA-7165", "an own old registration is waited for", old_registration_is_fatal, (36,)),
    Mutant("25", "KAFKA-14845", "only sessions that were learned count", only_the_last_session_counts, (36,)),
    Mutant("25a", "KAFKA-14845", "the same, and it is tried once", only_learned_sessions_and_once, (36,)),
    Mutant("26", "KAFKA-7235", "the controller sees no bounce", bounces_unseen, (34, 44)),
    Mutant("26a", "KAFKA-7235", "brokers take orders for earlier runs", brokers_take_what_was_not_meant_for_them, (6,)),
    Mutant("26b", "KAFKA-7235", "earlier runs of a broker may ask", earlier_runs_may_ask, (31, 30)),
    Mutant("27", "KAFKA-7482", "leaving brokers get no orders", the_leaving_not_told, (30, 44)),
    Mutant("28", "KAFKA-8121", "a session is sought after the end", sessions_after_the_end, (36,)),
    Mutant("28a", "KAFKA-8121", "a session that is being closed reconnects", closing_sessions_reconnect, (36,)),
    Mutant("28b", "KAFKA-8121", "who seeks a session when it ends finds it", renewal_outlives_the_end, (36,)),
    Mutant(
        "28+28a",
        "KAFKA-8121",
        "closed sessions hear that they expired, and another is sought",
        together(sessions_after_the_end, closing_sessions_reconnect),
        (36,),
    ),
    Mutant("29", "KAFKA-9089", "a move enters memory before ZooKeeper", memory_before_znode, (27, 34)),
    Mutant("30", "KAFKA-9212", "bumped epochs are not remembered", bumped_epoch_not_remembered, (34, 9)),
    Mutant(
        "31",
        "KAFKA-9307, 9769",
        "the epoch is remembered, the work failed",
        epochs_remembered_before_the_work,
        (42, 44),
    ),
    Mutant("32", "KAFKA-9478", "impossible entries stay in the list", unknown_entries_stay, (43,)),
    Mutant("33", "KAFKA-9539", "StopReplica without leader epoch", stops_without_epochs, (22, 18)),
    Mutant("34", "KAFKA-10193", "preempted callers are not answered", callers_forgotten, (33,)),
    Mutant("35", "KAFKA-12686", "what was refused once is never asked again", refused_for_good, (42,)),
    Mutant("35a", "KAFKA-12751", "a proposal survives newer orders", proposals_survive_orders, (62, 42, 31)),
    Mutant("36", "KAFKA-12835", "the id is lost when a topic is rewritten", ids_lost_when_rewritten, (25,)),
    Mutant(
        "37",
        "KAFKA-13407",
        "a controller znode without a term counts as an active controller",
        elected_means_nothing_to_do,
        (40,),
    ),
    Mutant("38", "KAFKA-13461", "nobody watches who is controller", resigned_without_a_watch, (35, 40)),
    Mutant("38a", "KAFKA-13461", "nobody watches the topics", topics_unwatched, (35,)),
    Mutant("39", "KAFKA-13972", "stops need a newer epoch", stops_need_a_newer_epoch, (29, 24)),
    Mutant("40", "KAFKA-14140", "the dead and the leaving may enter the ISR", the_dead_may_enter, (31, 30)),
    Mutant("41", "KAFKA-14144", "AlterPartition again is fenced", retries_are_fenced, (31,)),
    Mutant("41a", "KAFKA-14154", "a controller that knows less says no", zombies_say_no, (31,)),
    Mutant("42", "KAFKA-14808", "an override drops the leader", leader_dropped_by_override, (41, 29)),
    Mutant("a", "", "offline elections follow the order of the ISR", elected_in_isr_order, (15,)),
    Mutant("b", "", "preferred leaders need not be in sync", preferred_without_being_in_sync, (13, 15, 39)),
    Mutant("c", "", "a shutdown is answered before leaders move", the_leaving_go_at_once, (30,)),
    Mutant("d", "", "a topic goes before its replicas", deletions_do_not_wait, (23,)),
    Mutant("e", "", "deletions do not resume when brokers come", deletions_do_not_resume, (43,)),
    Mutant("f", "", "replicas go before the target is in sync", joined_is_enough, (28, 22)),
    Mutant("g", "", "nobody writes down what a move takes from a broker", moved_replicas_not_written_down, (24, 29)),
    Mutant("h", "", "every stop deletes", stops_delete, (22,)),
    Mutant("i", "", "all replicas are told that they are new", always_new, (19,)),
    Mutant("j", "", "no replica is told that it is new", never_new, (19,)),
    Mutant("k", "", "LeaderAndIsr leaves out adding replicas", adding_left_out, (27,)),
    Mutant("l", "", "LeaderAndIsr leaves out removing replicas", removing_left_out, (27,)),
    Mutant("m", "", "LeaderAndIsr leaves out the recovery state", recovery_left_out, (9,)),
    Mutant("n", "", "LeaderAndIsr leaves out who decided", deciding_epoch_left_out, (9,)),
    Mutant("o", "", "LeaderAndIsr sorts replicas", replicas_in_the_order_of_ids, (27,)),
    Mutant("p", "", "metadata has the ISR for replicas", metadata_lists_the_isr_as_replicas, (9,)),
    Mutant("q", "", "metadata has an older partition epoch", metadata_is_one_version_behind, (9, 17)),
    Mutant("r", "", "metadata lists no offline replicas", nobody_is_offline, (38,)),
    Mutant("s", "", "metadata lists replicas of the leaving as online", the_leaving_are_online, (38,)),
    Mutant("t", "", "metadata does not say that a topic goes", going_topics_look_alive, (44, 43, 26)),
    Mutant("u", "", "LeaderAndIsr lists no leaders", leaders_unlisted, (34,)),
    Mutant("v", "", "LeaderAndIsr lists leaders at another port", leaders_at_a_wrong_port, (34,)),
    Mutant("w", "", "metadata lists brokers at another host", brokers_at_a_wrong_host, (34,)),
    Mutant("x", "", "requests carry no topic ids", ids_left_out, (25,)),
    Mutant("y", "", "stops carry a later leader epoch", stops_in_a_later_epoch, (22,)),
    Mutant("z", "", "stops stand above all leader epochs", stops_above_all_epochs, (22,)),
    Mutant("aa", "", "LeaderAndIsr carries an older broker epoch", epochs_of_earlier_runs, (34, 18, 6)),
)


class Hiding(NamedTuple):
    """A guard that nobody misses as long as another one holds."""

    pair: str
    """The mutant that has both out: it must be caught."""
    behind: str


HIDING = {
    "17": Hiding("17+17c", "a leader that takes the newcomer into its ISR sets the move going, too"),
    "28": Hiding("28+28a", "a session that is being closed ends as closed, never as expired"),
    "28a": Hiding("28+28a", "sessions that expire after the end are not replaced"),
}
"""Those that may survive alone."""
