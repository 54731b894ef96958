"""The table of mutants: each removes one guard of the controller, and the simulation has to notice it.

A guard whose removal the simulation does not notice is not tested by it. The numbers are those of the catalogue of
historic bugs, `expected` those of the invariants (`klamm.sim.invariants.table`) that have to be violated. A mutant
patches like a test's `monkeypatch`; where two guards each suffice, one mutant removes both.
"""

from tests.simulation.injected_bugs.answers import (
    all_elections_succeed,
    blocks_given_twice,
    configs_stay,
    imbalance_is_checked_once,
    imbalance_never_checked,
    no_election_succeeds,
    rebalancing_ignores_some_partitions,
    requested_elections_elect_no_leader,
    timers_outlive_the_term,
)
from tests.simulation.injected_bugs.bookkeeping import (
    completed_reassignments_not_sent,
    events_not_timed,
    live_replicas_begin_ineligible,
    lowest_ids_keep_no_mirror,
    moved_leaders_listed_twice,
    nothing_found_is_journalled,
    reassignments_not_listed,
    replicas_leave_without_a_leader,
    requested_deletions_not_journalled,
    requests_not_journalled,
    standby_outlives_the_node,
    states_journalled_before_they_change,
    steps_not_journalled,
)
from tests.simulation.injected_bugs.configs import (
    config_changes_unannounced,
    config_changes_unwatched,
    config_follower_ends_at_the_first_error,
    configs_mixed_up,
    defaults_of_all_brokers_ignored,
    new_sessions_read_no_configs,
    notifications_deleted_after_seconds,
    notifications_deleted_at_once,
    notifications_name_another_entity,
    only_the_newest_notification_is_read,
    own_config_taken_for_all_brokers,
)
from tests.simulation.injected_bugs.controllership import (
    context_survives_the_term,
    controller_znode_without_term_is_active,
    epoch_read_before_each_write,
    expiry_waits_for_next_session,
    replaced_controller_handles_events,
    resigned_without_a_watch,
    topics_unwatched,
    waiting_requests_not_answered,
    writes_without_epoch_check,
)
from tests.simulation.injected_bugs.failover import (
    deletions_forgotten_in_failover,
    leader_and_isr_before_metadata,
    offline_replicas_stay_in_isrs,
    offline_replicas_stay_in_isrs_at_failover,
    reassignments_forgotten_in_failover,
    states_not_loaded,
)
from tests.simulation.injected_bugs.handlers import elections_wait_for_live_replicas, handlers_wait_for_brokers
from tests.simulation.injected_bugs.leaders_and_isrs import (
    dead_leaders_stay,
    elected_in_isr_order,
    ineligible_brokers_may_enter_isr,
    isr_emptied,
    outdated_controller_refuses_isr_changes,
    outdated_leaders_may_add_removed_replicas,
    own_lost_creation_not_recognised,
    own_lost_isr_change_not_recognised,
    own_lost_write_not_recognised,
    preferred_without_being_in_sync,
    removed_replicas_may_return,
    retries_are_fenced,
    shutdown_answered_before_leaders_move,
    stopping_brokers_get_no_requests,
    stops_without_epochs,
)
from tests.simulation.injected_bugs.mirrors import (
    changes_during_a_read_forgotten,
    changes_not_read_again,
    encoded_states_outlive_changes,
    mirror_behind_the_election_taken,
    mirror_taken_without_sync,
    noted_changes_forgotten_at_the_election,
    notices_lost,
    recreated_topic_taken_for_the_old_one,
)
from tests.simulation.injected_bugs.mutant import Mutant, together
from tests.simulation.injected_bugs.reassignments import (
    bumped_epoch_not_remembered,
    leader_dropped_by_override,
    memory_before_znode,
    no_pending_deletion_for_removed_replicas,
    reassignments_not_advanced_by_isr_changes,
    reassignments_not_resumed_by_brokers,
    reassignments_to_dead_brokers_dropped,
    replicas_removed_before_target_is_in_sync,
    request_removed_at_once,
    unknown_entries_stay,
)
from tests.simulation.injected_bugs.refused_work import (
    moves_of_leaders_refused,
    records_of_deleted_replicas_stay,
    retries_come_too_soon,
    waiting_deletions_not_marked,
)
from tests.simulation.injected_bugs.registrations import (
    bounces_not_noticed,
    closing_sessions_reconnect,
    half_of_partitions_sent_to_started_broker,
    old_broker_epochs_accepted,
    old_registration_is_fatal,
    only_learned_sessions_and_once,
    only_the_last_session_counts,
    registered_once,
    registrations_read_before_the_event,
    session_opened_while_node_stops,
    sessions_after_the_end,
)
from tests.simulation.injected_bugs.requests import (
    adding_left_out,
    always_new,
    brokers_at_a_wrong_host,
    deciding_epoch_left_out,
    epochs_of_earlier_runs,
    ids_left_out,
    leaders_at_a_wrong_port,
    leaders_unlisted,
    metadata_is_one_version_behind,
    metadata_lists_the_isr_as_replicas,
    never_new,
    no_offline_replicas_listed,
    recovery_left_out,
    removing_left_out,
    replicas_in_the_order_of_ids,
    stopping_brokers_listed_online,
    stops_above_all_epochs,
    stops_delete,
    stops_in_a_later_epoch,
    topics_being_deleted_not_marked,
)
from tests.simulation.injected_bugs.simulated_brokers import (
    any_controller_epoch_accepted,
    epochs_remembered_before_the_work,
    no_replica_without_a_leader,
    older_leader_epochs_accepted,
    proposals_kept_after_leader_and_isr,
    refused_isr_changes_not_repeated,
    repeated_requests_applied,
    requests_for_earlier_registrations_accepted,
    stops_need_a_newer_epoch,
)
from tests.simulation.injected_bugs.topics import (
    deletions_do_not_resume,
    deletions_do_not_wait,
    ids_lost_when_rewritten,
    leaderless_replicas_stay_online,
    partitions_added_during_deletion,
)

MUTANTS = (
    Mutant("1", "KAFKA-532", "brokers follow any controller epoch", any_controller_epoch_accepted, (4, 5)),
    Mutant("2", "KAFKA-708", "the last member leaves the ISR", isr_emptied, (11,)),
    Mutant(
        "3",
        "KAFKA-831",
        "a started broker gets LeaderAndIsr for half of its partitions",
        half_of_partitions_sent_to_started_broker,
        (19, 30, 44),
    ),
    Mutant("4", "KAFKA-849", "failover does not load partition states", states_not_loaded, (34, 16, 19, 44)),
    Mutant(
        "5", "KAFKA-992, 1387", "a broker treats its own old registration as another broker's", registered_once, (36,)
    ),
    Mutant(
        "6", "KAFKA-1096", "the controller epoch is read again before each write", epoch_read_before_each_write, (1, 3)
    ),
    Mutant(
        "7", "KAFKA-1097", "AlterPartition accepts an ISR with a non-replica", removed_replicas_may_return, (12, 31)
    ),
    Mutant(
        "7a",
        "KAFKA-1097",
        "the same, also from leaders with an old leader epoch",
        outdated_leaders_may_add_removed_replicas,
        (12, 31),
    ),
    Mutant(
        "8", "KAFKA-1188", "brokers accept requests with older leader epochs", older_leader_epochs_accepted, (8, 44)
    ),
    Mutant(
        "9",
        "KAFKA-1382",
        "own writes whose response was lost are not recognized",
        own_lost_write_not_recognised,
        (9, 31, 42),
    ),
    Mutant("9a", "KAFKA-1382", "the same, only for ISR changes", own_lost_isr_change_not_recognised, (9, 31, 42)),
    Mutant("9b", "KAFKA-1382", "the same, only for first states", own_lost_creation_not_recognised, (34, 41, 19)),
    Mutant("10", "KAFKA-1647", "brokers create no replica without a leader", no_replica_without_a_leader, (44,)),
    Mutant("11", "KAFKA-1681", "failover does not resume topic deletions", deletions_forgotten_in_failover, (43,)),
    Mutant("12", "KAFKA-2300, 5310", "the context is kept after the term", context_survives_the_term, (33,)),
    Mutant("13", "KAFKA-2721", "brokers apply a repeated request again", repeated_requests_applied, (60,)),
    Mutant(
        "14",
        "KAFKA-3085, 5502",
        "registrations are read before the watch event, not after it",
        registrations_read_before_the_event,
        (34, 36),
    ),
    Mutant("15", "KAFKA-3096", "a dead leader stays leader", dead_leaders_stay, (10, 41)),
    Mutant(
        "16",
        "KAFKA-3143",
        "failover removes no dead brokers from ISRs",
        offline_replicas_stay_in_isrs_at_failover,
        (42,),
    ),
    Mutant(
        "16a",
        "KAFKA-3143",
        "neither failover nor leaders remove dead brokers from ISRs",
        offline_replicas_stay_in_isrs,
        (42,),
    ),
    Mutant(
        "17",
        "KAFKA-4214",
        "reassignments do not resume when brokers register",
        reassignments_not_resumed_by_brokers,
        (43,),
    ),
    Mutant(
        "17a", "KAFKA-4214", "reassignments do not resume after failover", reassignments_forgotten_in_failover, (43,)
    ),
    Mutant(
        "17b",
        "KAFKA-4214",
        "failover drops reassignments to brokers that are not live",
        reassignments_to_dead_brokers_dropped,
        (43,),
    ),
    Mutant(
        "17c",
        "KAFKA-4214",
        "reassignments do not advance when ISRs change",
        reassignments_not_advanced_by_isr_changes,
        (43,),
    ),
    Mutant(
        "17+17c",
        "KAFKA-4214",
        "17 and 17c together",
        together(reassignments_not_resumed_by_brokers, reassignments_not_advanced_by_isr_changes),
        (43,),
    ),
    Mutant("18", "KAFKA-4229, 6879", "expiry waits for the next session", expiry_waits_for_next_session, (45, 40, 36)),
    Mutant(
        "19", "KAFKA-4443", "no UpdateMetadata before the first LeaderAndIsr", leader_and_isr_before_metadata, (19,)
    ),
    Mutant(
        "20", "KAFKA-4447", "a replaced controller goes on handling events", replaced_controller_handles_events, (33, 3)
    ),
    Mutant("21", "KAFKA-6082", "writes do not check the controller epoch", writes_without_epoch_check, (3,)),
    Mutant(
        "22", "KAFKA-6193", "the reassignment znode is deleted when its event is queued", request_removed_at_once, (28,)
    ),
    Mutant(
        "23",
        "KAFKA-6612",
        "partitions are added to a topic that is being deleted",
        partitions_added_during_deletion,
        (26,),
    ),
    Mutant("23a", "KAFKA-6650", "leaderless replicas do not go offline", leaderless_replicas_stay_online, (43, 21)),
    Mutant(
        "24", "KAFKA-7165", "a broker waits for its own old registration to disappear", old_registration_is_fatal, (36,)
    ),
    Mutant(
        "25",
        "KAFKA-14845",
        "a broker recognizes only registrations of sessions that it knows",
        only_the_last_session_counts,
        (36,),
    ),
    Mutant("25a", "KAFKA-14845", "the same, and registration is tried once", only_learned_sessions_and_once, (36,)),
    Mutant("26", "KAFKA-7235", "the controller does not notice bounced brokers", bounces_not_noticed, (34, 44)),
    Mutant(
        "26a",
        "KAFKA-7235",
        "brokers accept requests for earlier registrations",
        requests_for_earlier_registrations_accepted,
        (6,),
    ),
    Mutant("26b", "KAFKA-7235", "requests with an old broker epoch are accepted", old_broker_epochs_accepted, (31, 30)),
    Mutant(
        "27", "KAFKA-7482", "brokers in controlled shutdown get no requests", stopping_brokers_get_no_requests, (30, 44)
    ),
    Mutant("28", "KAFKA-8121", "a stopped node opens another session", sessions_after_the_end, (36,)),
    Mutant("28a", "KAFKA-8121", "a session that is being closed reconnects", closing_sessions_reconnect, (36,)),
    Mutant(
        "28b",
        "KAFKA-8121",
        "a node that stops while it opens a session gets the session",
        session_opened_while_node_stops,
        (36,),
    ),
    Mutant(
        "28+28a",
        "KAFKA-8121",
        "28 and 28a together",
        together(sessions_after_the_end, closing_sessions_reconnect),
        (36,),
    ),
    Mutant("29", "KAFKA-9089", "a reassignment enters memory before it is written", memory_before_znode, (27, 34)),
    Mutant("30", "KAFKA-9212", "increased leader epochs are not kept in memory", bumped_epoch_not_remembered, (34, 9)),
    Mutant(
        "31",
        "KAFKA-9307, 9769",
        "the leader epoch is kept although LeaderAndIsr failed",
        epochs_remembered_before_the_work,
        (42, 44),
    ),
    Mutant(
        "32", "KAFKA-9478", "entries of unknown partitions stay in the reassignment znode", unknown_entries_stay, (43,)
    ),
    Mutant("33", "KAFKA-9539", "StopReplica has no leader epoch", stops_without_epochs, (22, 18)),
    Mutant(
        "34",
        "KAFKA-10193",
        "waiting requests are not answered at a session expiry",
        waiting_requests_not_answered,
        (33,),
    ),
    Mutant(
        "35", "KAFKA-12686", "a refused ISR change is never proposed again", refused_isr_changes_not_repeated, (42,)
    ),
    Mutant(
        "35a",
        "KAFKA-12751",
        "a proposed ISR change is kept after a newer LeaderAndIsr",
        proposals_kept_after_leader_and_isr,
        (62, 42, 31),
    ),
    Mutant("36", "KAFKA-12835", "the topic id is lost when the znode is rewritten", ids_lost_when_rewritten, (25,)),
    Mutant(
        "37",
        "KAFKA-13407",
        "a controller znode without a term counts as an active controller",
        controller_znode_without_term_is_active,
        (40,),
    ),
    Mutant("38", "KAFKA-13461", "`/controller` is not watched", resigned_without_a_watch, (35, 40)),
    Mutant("38a", "KAFKA-13461", "topics are not watched", topics_unwatched, (35,)),
    Mutant(
        "39",
        "KAFKA-13972",
        "brokers accept StopReplica only with a newer leader epoch",
        stops_need_a_newer_epoch,
        (29, 24),
    ),
    Mutant(
        "40", "KAFKA-14140", "dead and stopping brokers may enter the ISR", ineligible_brokers_may_enter_isr, (31, 30)
    ),
    Mutant("41", "KAFKA-14144", "a repeated AlterPartition is fenced", retries_are_fenced, (31,)),
    Mutant(
        "41a",
        "KAFKA-14154",
        "a controller with an older state refuses AlterPartition",
        outdated_controller_refuses_isr_changes,
        (31,),
    ),
    Mutant("42", "KAFKA-14808", "an overriding reassignment removes the leader", leader_dropped_by_override, (41, 29)),
    Mutant("a", "", "offline elections follow the order of the ISR", elected_in_isr_order, (15,)),
    Mutant("b", "", "preferred leaders need not be in sync", preferred_without_being_in_sync, (13, 15, 39)),
    Mutant("c", "", "a shutdown is answered before leaders move", shutdown_answered_before_leaders_move, (30,)),
    Mutant("d", "", "a topic znode is deleted before its replicas", deletions_do_not_wait, (23,)),
    Mutant("e", "", "deletions do not resume when brokers register", deletions_do_not_resume, (43,)),
    Mutant(
        "f",
        "",
        "replicas are removed before the target is in sync",
        replicas_removed_before_target_is_in_sync,
        (28, 22),
    ),
    Mutant(
        "g",
        "",
        "no pending deletion is recorded for a replica that a reassignment removes",
        no_pending_deletion_for_removed_replicas,
        (24, 29),
    ),
    Mutant("h", "", "every StopReplica deletes the replica", stops_delete, (22,)),
    Mutant("i", "", "LeaderAndIsr has `is_new` for all replicas", always_new, (19,)),
    Mutant("j", "", "LeaderAndIsr has `is_new` for no replica", never_new, (19,)),
    Mutant("k", "", "LeaderAndIsr leaves out adding replicas", adding_left_out, (27,)),
    Mutant("l", "", "LeaderAndIsr leaves out removing replicas", removing_left_out, (27,)),
    Mutant("m", "", "LeaderAndIsr leaves out the recovery state", recovery_left_out, (9,)),
    Mutant("n", "", "LeaderAndIsr leaves out the controller epoch of the state", deciding_epoch_left_out, (9,)),
    Mutant("o", "", "LeaderAndIsr sorts replicas", replicas_in_the_order_of_ids, (27,)),
    Mutant("p", "", "UpdateMetadata has the ISR as replicas", metadata_lists_the_isr_as_replicas, (9,)),
    Mutant("q", "", "UpdateMetadata has an older partition epoch", metadata_is_one_version_behind, (9, 17)),
    Mutant("r", "", "UpdateMetadata lists no offline replicas", no_offline_replicas_listed, (38,)),
    Mutant(
        "s", "", "UpdateMetadata lists replicas on stopping brokers as online", stopping_brokers_listed_online, (38,)
    ),
    Mutant(
        "t",
        "",
        "UpdateMetadata does not say that a topic is being deleted",
        topics_being_deleted_not_marked,
        (44, 43, 26),
    ),
    Mutant("u", "", "LeaderAndIsr lists no leaders", leaders_unlisted, (34,)),
    Mutant("v", "", "LeaderAndIsr lists leaders at another port", leaders_at_a_wrong_port, (34,)),
    Mutant("w", "", "UpdateMetadata lists brokers at another host", brokers_at_a_wrong_host, (34,)),
    Mutant("x", "", "requests carry no topic ids", ids_left_out, (25,)),
    Mutant("y", "", "StopReplica has a later leader epoch", stops_in_a_later_epoch, (22,)),
    Mutant("z", "", "StopReplica has a leader epoch above all others", stops_above_all_epochs, (22,)),
    Mutant("aa", "", "LeaderAndIsr carries an older broker epoch", epochs_of_earlier_runs, (34, 18, 6)),
    Mutant("ab", "", "blocks of producer ids are given twice", blocks_given_twice, (31,)),
    Mutant("ac", "", "configs of deleted topics are not deleted", configs_stay, (23,)),
    Mutant("ad", "", "timers are not cancelled at the end of the term", timers_outlive_the_term, (33,)),
    Mutant("ae", "", "every requested election is answered with success", all_elections_succeed, (39,)),
    Mutant("af", "", "every requested election is answered with an error", no_election_succeeds, (39,)),
    Mutant("ag", "", "imbalance is never checked", imbalance_never_checked, (39,)),
    Mutant("ah", "", "config changes are not watched", config_changes_unwatched, (35, 44)),
    Mutant("ai", "", "new sessions do not read config changes", new_sessions_read_no_configs, (35, 44)),
    Mutant("aj", "", "config changes are not announced", config_changes_unannounced, (45,)),
    Mutant("ak", "", "notifications are deleted at once", notifications_deleted_at_once, (45,)),
    Mutant("am", "", "defaults of all brokers are not read", defaults_of_all_brokers_ignored, (44,)),
    Mutant("an", "", "only the newest of several notifications is read", only_the_newest_notification_is_read, (44,)),
    Mutant("ao", "", "notifications name another entity", notifications_name_another_entity, (45, 44)),
    Mutant("ap", "", "notifications are deleted after seconds", notifications_deleted_after_seconds, (45,)),
    Mutant("aq", "", "topics get the configs of other topics", configs_mixed_up, (44,)),
    Mutant("ar", "", "the config of one broker is applied to all brokers", own_config_taken_for_all_brokers, (44,)),
    Mutant(
        "as", "", "the config follower ends at the first error", config_follower_ends_at_the_first_error, (35, 44, 45)
    ),
    Mutant("at", "KAFKA-4360", "handlers wait for brokers", handlers_wait_for_brokers, (45,)),
    Mutant("au", "KAFKA-4360", "handlers wait for live replicas", elections_wait_for_live_replicas, (45,)),
    Mutant("av", "", "a mirror misses some watch events", notices_lost, (34,)),
    Mutant("aw", "", "a mirror does not read what changed", changes_not_read_again, (34,)),
    Mutant(
        "ay",
        "",
        "changes that a mirror knows of are not read at the election",
        noted_changes_forgotten_at_the_election,
        (34,),
    ),
    Mutant(
        "az", "", "a recreated topic is treated as the earlier one", recreated_topic_taken_for_the_old_one, (34, 25)
    ),
    Mutant("ba", "", "imbalance is checked once in a term", imbalance_is_checked_once, (39,)),
    Mutant(
        "bb", "", "an imbalance check elects one preferred replica only", rebalancing_ignores_some_partitions, (39,)
    ),
    Mutant("bc", "", "requested elections elect no leader", requested_elections_elect_no_leader, (39,)),
    Mutant("bd", "", "encoded states outlive a change", encoded_states_outlive_changes, (34,)),
    Mutant("be", "", "steps of reassignments are not journalled", steps_not_journalled, (79,)),
    Mutant("bf", "", "LeaderAndIsr requests are not journalled", requests_not_journalled, (79,)),
    Mutant("bg", "", "decisions are journalled with the former state", states_journalled_before_they_change, (79,)),
    Mutant("bh", "", "a former leader keeps the partition in its list", moved_leaders_listed_twice, (34,)),
    Mutant("bi", "", "events are not timed", events_not_timed, (80,)),
    Mutant("bj", "", "other nodes keep mirrors than those chosen", lowest_ids_keep_no_mirror, (81,)),
    Mutant("bk", "", "a standby outlives its node", standby_outlives_the_node, (36,)),
    Mutant("bl", "KAFKA-14808", "replicas leave although no target leads", replicas_leave_without_a_leader, (41,)),
    Mutant("bm", "", "reassignments are not listed", reassignments_not_listed, (31,)),
    Mutant("bn", "", "live replicas begin a term as ineligible", live_replicas_begin_ineligible, (21, 34)),
    Mutant("bo", "", "the target of a reassignment is not sent", completed_reassignments_not_sent, (44, 34)),
    Mutant("bp", "", "changes while a mirror reads are forgotten", changes_during_a_read_forgotten, (34,)),
    Mutant("bq", "", "requested deletions are not journalled", requested_deletions_not_journalled, (79,)),
    Mutant("br", "", "reassignments are journalled as found where there are none", nothing_found_is_journalled, (79,)),
    Mutant("bs", "", "deletions that wait are not marked", waiting_deletions_not_marked, (79,)),
    Mutant("bt", "", "moves away from leaders are refused", moves_of_leaders_refused, (31,)),
    Mutant("bu", "", "events that failed are repeated too soon", retries_come_too_soon, (45,)),
    Mutant("bv", "", "records of deleted replicas stay", records_of_deleted_replicas_stay, (43,)),
    Mutant("bw", "", "a mirror is taken without sync", mirror_taken_without_sync, (34,)),
    Mutant(
        "bw+bwa",
        "",
        "a mirror is taken without sync, and also from a server that lags behind the election",
        together(mirror_taken_without_sync, mirror_behind_the_election_taken),
        (34,),
    ),
)
