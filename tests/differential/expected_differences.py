"""Differences that are on purpose: each with its reason, and in `expected/SUBJECT.txt` exactly what they are.

The reasons stand in `docs/differences.md` at more length.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.differential.comparison import subject_of
from tests.differential.normalize import BROKERS
from tests.differential.transcript import (
    Difference,
    Sections,
    differences_to_lines,
    lines_to_differences,
    sections_to_text,
    text_to_sections,
)

MEMORY_WAS_OLD = "BAD_VERSION of a later one"
EXPECTED = Path(__file__).parent / "expected"

_OLDER = "the node around our controller speaks 3.9 in these plays, only the controller speaks the older protocol"
_ONE_STOP = "a replica is deleted by one StopReplica, and is not taken out of its ISR first"
_AT_ONCE = "a failover deletes what it can at once, not when the dead return"
_WAITS = "a deletion waits for a reassignment: Kafka means to, but marks the topic before it is queued, to no effect"
_ONE_WRITE = "partitions that move in one event share one write of their topic's znode, and of the list"
_IN_THE_FIRST = "who was away when it became the target of a reassignment hears of it in its first LeaderAndIsr"
_OUT_FIRST = "replicas that an override drops leave the ISR before the assignment is written"
_LEADER_STAYS = "an override that drops the leader elects one that stays first, or is refused (KAFKA-14808)"
_NEVER_LED = "a topic that never had a leader can be deleted by the API"
REASONS = {
    "an_isr_change_to_nobody": "an ISR is never empty: INVALID_REQUEST",
    "isr_changes_beyond_the_assignment": "who holds no replica is ineligible, like a dead broker",
    "isr_changes_by_a_broker_that_does_not_lead": "only the leader changes the ISR: INVALID_REQUEST",
    "an_isr_change_with_an_unknown_recovery_state": "INVALID_REQUEST for that partition; the others are served",
    "an_isr_change_that_zookeeper_refuses": "the leader is told of the state that another client wrote",
    "the_controller_epoch_is_moved": "the controller resigns, and the next one continues from the changed epoch",
    "a_broker_dies_before_it_deleted": _ONE_STOP,
    "a_broker_bounces_before_it_deleted": _ONE_STOP,
    "a_lost_answer_of_a_broker_that_deleted": _ONE_STOP,
    "a_topic_grows_while_it_is_deleted": _ONE_STOP,
    "two_brokers_die_before_they_deleted": _ONE_STOP,
    "a_failover_in_the_middle_of_a_deletion": _ONE_STOP,
    "a_topic_queued_for_deletion_takes_no_part": _ONE_STOP,
    "the_request_for_a_deletion_is_taken_back": _ONE_STOP,
    "a_topic_whose_assignment_is_nonsense": "a deletion tells the brokers, also where the topic has no partition",
    "a_deleted_topics_znode_is_gone_already": "the request goes with its topic, not at the next failover",
    "a_failover_while_a_deletion_waits": _AT_ONCE,
    "deletions_are_requested_while_nobody_looks": _AT_ONCE,
    "another_node_takes_over_in_the_middle_of_all": _AT_ONCE,
    "a_deletion_waits_for_a_reassignment": _WAITS,
    "a_deletion_that_waits_for_a_reassignment_at_a_failover": _WAITS,
    "a_failover_while_a_replica_catches_up_for_the_znode": _ONE_WRITE,
    "a_reassignment_by_the_znode_is_overridden_by_the_api": _ONE_WRITE,
    "a_shutdown_while_replicas_catch_up": _ONE_WRITE,
    "fewer_replicas": _ONE_WRITE,
    "one_of_three_replicas_moves": _ONE_WRITE,
    "reassignments_are_requested_while_nobody_looks": _ONE_WRITE,
    "several_reassignments_in_one_znode": _ONE_WRITE,
    "a_new_replica_is_dead": _IN_THE_FIRST,
    "a_new_replica_is_away": _IN_THE_FIRST,
    "a_reassignment_by_the_znode_with_replicas_named_twice": "each is refused with its reason, and removed",
    "the_znode_of_reassignments_is_nonsense": "refused in the journal, and removed",
    "the_znode_of_reassignments_holds_what_nobody_knows": "refused in the journal, and removed",
    "a_reassignment_is_cancelled_when_the_new_replica_is_in_sync": _OUT_FIRST,
    "the_leader_is_dropped_by_an_override": _LEADER_STAYS,
    "the_leader_is_dropped_by_cancelling": _LEADER_STAYS,
    "a_reassignment_of_what_was_never_online": "it gets a first leader among the living; the dead are written down",
    "a_reassignment_to_who_cannot_lead": "a reassignment whose new leader cannot be elected stops there",
    "a_topic_changes_its_id_by_hand": "a znode under the same name with another id is a new topic",
    "a_znode_of_preferred_leaders_that_is_nonsense": "refused in the journal, and removed",
    "what_creations_are_refused_for": "an empty list of replicas is INVALID_REPLICA_ASSIGNMENT; Kafka makes the topic",
    "a_topic_grows_where_some_brokers_have_racks": "replicas that are named need no racks; Kafka fails, by -1",
    "a_reassignment_by_the_znode_is_under_way_by_the_api": "what is under way already is not begun again",
    "a_replica_whose_directory_failed_goes_and_comes_back": "a failed directory is forgotten with its replica",
    "a_reassignment_in_2_6": _OLDER,
    "features_before_they_were_invented": _OLDER,
    "topics_get_no_ids_in_2_7": _OLDER,
    "a_small_scenario_in_2_8": _OLDER,
    "a_small_scenario_in_2_4": _OLDER,
    "a_small_scenario_in_2_2": _OLDER,
    "a_small_scenario_in_1_0": _OLDER,
    "a_small_scenario_in_0_10_2": _OLDER,
    "generated_30049": _NEVER_LED,
    "generated_31028": "a failover elects for partitions without a leader before it writes the ISRs of others",
    "generated_32041": _NEVER_LED,
}
"""By script. Its differences are in the file of that name."""


def unexpected(script: str, differences: Iterable[Difference]) -> list[Difference]:
    """The differences that are not expected in this script."""
    listed = expected(script)
    return [d for d in differences if not is_always_expected(d) and d not in listed]


def expected(script: str) -> list[Difference]:
    """The differences that are expected in this script."""
    if script not in REASONS:
        return []
    return lines_to_differences(_sections(subject_of(script)).get(script, ()))


def listed_in(subject: str) -> list[str]:
    """The scripts for which this file lists expected differences."""
    return sorted(_sections(subject))


def accept(script: str, differences: Iterable[Difference]) -> None:
    """Write these differences down as expected. Raises KeyError if the script has no reason for them."""
    assert REASONS[script]
    listed = [d for d in differences if not is_always_expected(d)]
    lines = list(differences_to_lines(listed))
    assert lines_to_differences(lines) == listed, script
    subject = subject_of(script)
    sections = dict(sorted({**_sections(subject), script: lines}.items()))
    _file(subject).write_text(sections_to_text(sections))


def _sections(subject: str) -> Sections:
    """The expected differences of a subject's scripts, by script."""
    file = _file(subject)
    return text_to_sections(file.read_text()) if file.exists() else {}


def _file(subject: str) -> Path:
    """The path of the subject's file of expected differences."""
    return EXPECTED / f"{subject}.txt"


def is_always_expected(difference: Difference) -> bool:
    """Whether the difference is expected in every script."""
    return is_newer_broker_list(difference) or is_tried_from_memory(difference)


def is_tried_from_memory(difference: Difference) -> bool:
    """Kafka reads each state before it writes it; ours reads where its own knowledge turned out to be old."""
    if difference.place != "refused":
        return False
    theirs, ours = (
        [why for why in each or [] if why != MEMORY_WAS_OLD] for each in (difference.kafka, difference.klamm)
    )
    return theirs == ours


def is_newer_broker_list(difference: Difference) -> bool:
    """Whether only the broker list is newer: klamm reads it when a request leaves, Kafka when it is queued."""
    if not difference.place.endswith(f" {BROKERS}") or not difference.klamm or not difference.kafka:
        return False
    return difference.klamm[-1] == difference.kafka[-1] and _is_within(difference.klamm, difference.kafka)


def _is_within(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether the texts of `part` occur in `whole`, in the same order."""
    rest = iter(whole)
    return all(item in rest for item in part)
