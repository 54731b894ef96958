"""Elected leaders by strategy. Cases are Kafka's (PartitionLeaderElectionAlgorithmsTest) and some of klamm's own."""

from itertools import combinations, permutations

import pytest

from klamm.controller.context import ControllerContext
from klamm.controller.decisions.elections import (
    Choice,
    Facts,
    choose_initial,
    elect_for_controlled_shutdown,
    elect_for_reassignment,
    elect_offline,
    elect_preferred,
    plan_elections,
    rejected_candidates,
    without_live_isr,
)
from klamm.model.assignment import ReplicaAssignment
from klamm.model.brokers import Broker
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr, LeaderRecoveryState


def ids(digits: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(d)) for d in digits)


def facts(replicas: str, isr: str, live: str, unclean: bool = False, leaving: str = "", target: str = "") -> Facts:
    """Election facts; each digit is a broker."""
    return Facts(ids(replicas), ids(isr), frozenset(ids(live)), unclean, frozenset(ids(leaving)), ids(target))


def choice(leader: int, isr: str, told: str, unclean: bool = False) -> Choice:
    """The expected choice; `told` are the recipients of LeaderAndIsr."""
    return Choice(BrokerId(leader), ids(isr), unclean, ids(told))


OFFLINE = {
    "first live in-sync replica": (facts("123", "123", live="23"), choice(2, "23", "23")),
    "assignment order, not ISR order": (facts("321", "123", live="123"), choice(3, "123", "321")),
    "the ISR keeps its order": (facts("123", "321", live="123"), choice(1, "321", "123")),
    "broker 0 is a broker": (facts("01", "01", live="01"), choice(0, "01", "01")),
    "nobody in sync is alive": (facts("123", "1", live="23"), None),
    "Kafka: live and in sync": (facts("54", "4", live="4"), choice(4, "4", "4")),
    "Kafka: not in sync, clean": (facts("54", "5", live="4"), None),
    "Kafka: not in sync, unclean": (facts("54", "5", live="4", unclean=True), choice(4, "4", "4", unclean=True)),
    "a live in-sync replica wins even where unclean is allowed": (
        facts("123", "3", live="123", unclean=True),
        choice(3, "3", "123"),
    ),
    "a live ISR outside the assignment forbids an unclean choice": (facts("12", "3", live="123", unclean=True), None),
    "nobody is alive": (facts("123", "1", live="", unclean=True), None),
    "no replicas": (facts("", "", live="1", unclean=True), None),
}


@pytest.mark.parametrize(("given", "expected"), OFFLINE.values(), ids=OFFLINE)
def test_offline_election_picks_the_first_live_in_sync_replica_or_uncleanly_if_allowed(
    given: Facts, expected: Choice | None
) -> None:
    assert elect_offline(given) == expected


PREFERRED = {
    "the first leads again": (facts("123", "231", live="123"), choice(1, "231", "123")),
    "Kafka: not in the ISR": (facts("45", "5", live="45"), None),
    "not live": (facts("45", "45", live="5"), None),
    "nobody else will do": (facts("123", "23", live="23"), None),
    "Kafka: the first leads": (facts("24", "24", live="24"), choice(2, "24", "24")),
    "Kafka: in the ISR, but not live": (facts("24", "2", live=""), None),
    "Kafka: neither in the ISR nor live": (facts("24", "", live=""), None),
    "no replicas": (facts("", "", live="1"), None),
}


@pytest.mark.parametrize(("given", "expected"), PREFERRED.values(), ids=PREFERRED)
def test_preferred_election_picks_only_the_first_replica_if_live_and_in_sync(
    given: Facts, expected: Choice | None
) -> None:
    assert elect_preferred(given) == expected


REASSIGN = {
    "first of the target": (facts("45123", "1245", live="12345", target="45"), choice(4, "1245", "45")),
    "Kafka: none of the target in the ISR": (facts("54", "1", live="54", target="54"), None),
    "Kafka: none of the target live": (facts("54", "54", live="", target="54"), None),
    "Kafka: the second of the target is live": (facts("24", "24", live="4", target="24"), choice(4, "24", "24")),
    "Kafka: an empty ISR": (facts("24", "", live="2", target="24"), None),
}


@pytest.mark.parametrize(("given", "expected"), REASSIGN.values(), ids=REASSIGN)
def test_reassignment_election_picks_the_first_live_in_sync_replica_of_the_target(
    given: Facts, expected: Choice | None
) -> None:
    assert elect_for_reassignment(given) == expected


SHUTDOWN = {
    "Kafka: the other one in sync": (facts("54", "5", live="5", leaving="4"), choice(5, "5", "54")),
    "Kafka: the last one in sync shuts down": (facts("54", "4", live="5", leaving="4"), None),
    "the one that leaves is told too": (facts("123", "123", live="23", leaving="1"), choice(2, "23", "123")),
    "a dead member stays in the ISR": (facts("123", "123", live="2", leaving="1"), choice(2, "23", "12")),
    "all leave": (facts("12", "12", live="", leaving="12"), None),
}


@pytest.mark.parametrize(("given", "expected"), SHUTDOWN.values(), ids=SHUTDOWN)
def test_controlled_shutdown_election_skips_brokers_that_are_shutting_down(
    given: Facts, expected: Choice | None
) -> None:
    assert elect_for_controlled_shutdown(given) == expected


def test_a_new_partition_starts_with_its_first_live_replica_as_leader_and_all_live_in_isr() -> None:
    assert choose_initial(facts("312", "", live="12")) == choice(1, "12", "12")
    assert choose_initial(facts("312", "", live="4")) is None


def subsets(brokers: str) -> list[str]:
    return ["".join(c) for n in range(len(brokers) + 1) for c in combinations(brokers, n)]


def test_a_cleanly_elected_leader_is_always_the_first_live_in_sync_replica() -> None:
    for replicas in map("".join, permutations("012")):
        for isr in subsets("012"):
            for live in subsets("012"):
                expected = next((int(b) for b in replicas if b in live and b in isr), None)
                found = elect_offline(facts(replicas, isr, live))
                assert (found.leader if found else None) == expected
                assert found is None or (found.leader in found.isr and set(found.isr) <= set(ids(live)))


def test_the_reasons_of_an_election_name_every_replica_that_was_not_elected() -> None:
    given = facts("1234", "34", live="234", leaving="2")
    assert rejected_candidates(given, BrokerId(4)) == (
        (1, "not live"),
        (2, "shutting down"),
        (3, "not the preferred replica"),
    )
    assert rejected_candidates(facts("12", "2", live="12"), BrokerId(2)) == ((1, "not in the ISR"),)
    assert rejected_candidates(facts("12", "1", live="2"), None) == ((1, "not live"), (2, "not in the ISR"))


# ---- plans for many


def context_of(live: str, epoch: int = 7) -> ControllerContext:
    context = ControllerContext(epoch)
    context.add_brokers(Broker(b, ()) for b in ids(live))
    return context


def test_an_election_increments_the_leader_epoch_and_sets_the_controller_epoch() -> None:
    context = context_of("23")
    p = context.add_partition(context.add_topic("a", None), 0, ReplicaAssignment(ids("123")))

    plan = plan_elections(context, {p: LeaderAndIsr(BrokerId(1), 4, ids("123"), 6, 9)}, elect_offline)

    assert plan.writes == {p: LeaderAndIsr(BrokerId(2), 5, ids("23"), 7, 9)}


def test_a_partition_without_an_eligible_leader_does_not_stop_elections_of_others() -> None:
    context = context_of("2")
    topic = context.add_topic("a", None)
    newer, nobody, fine = (context.add_partition(topic, n, ReplicaAssignment(ids("12"))) for n in range(3))
    stored = {
        newer: LeaderAndIsr(BrokerId(1), 4, ids("12"), 8),
        nobody: LeaderAndIsr(BrokerId(1), 4, ids("1"), 7),
        fine: LeaderAndIsr(BrokerId(1), 4, ids("12"), 7),
    }

    plan = plan_elections(context, stored, elect_offline)

    assert list(plan.writes) == [fine]
    assert plan.refused == {
        newer: "a newer controller (epoch 8) wrote the state znode",
        nobody: "no replica is eligible to be leader",
    }
    assert without_live_isr(context, stored) == [nobody]


@pytest.mark.parametrize(("tracks", "expected"), [(True, 1), (False, 0)])
def test_an_uncleanly_elected_leader_is_marked_recovering_if_the_protocol_supports_that_state(
    tracks: bool, expected: int
) -> None:
    context = context_of("2")
    p = context.add_partition(context.add_topic("a", None), 0, ReplicaAssignment(ids("12")))
    stored = {p: LeaderAndIsr(BrokerId(1), 4, ids("1"), 7)}

    plan = plan_elections(context, stored, elect_offline, frozenset({"a"}), tracks)

    assert plan.writes[p].recovery == expected
    choice = plan.decided[p].choice
    assert choice is not None
    assert choice.unclean


def test_a_clean_election_keeps_the_recovering_state_of_a_partition() -> None:
    context = context_of("2")
    p = context.add_partition(context.add_topic("a", None), 0, ReplicaAssignment(ids("12")))
    stored = {p: LeaderAndIsr(BrokerId(2), 4, ids("2"), 7, 0, LeaderRecoveryState.RECOVERING)}

    assert plan_elections(context, stored, elect_offline).writes[p].recovery is LeaderRecoveryState.RECOVERING


def test_a_replica_on_a_failed_log_directory_is_ineligible_only_for_its_own_partition() -> None:
    context = context_of("12")
    topic = context.add_topic("a", None)
    failed, fine = (context.add_partition(topic, n, ReplicaAssignment(ids("12"))) for n in range(2))
    context.offline_dirs[BrokerId(1)] = {failed: None}
    stored = {p: LeaderAndIsr(BrokerId(1), 0, ids("12"), 7) for p in (failed, fine)}

    plan = plan_elections(context, stored, elect_offline)

    assert [plan.writes[p].leader for p in (failed, fine)] == [2, 1]
    assert without_live_isr(context, {p: s._replace(isr=ids("1")) for p, s in stored.items()}) == [failed]


def test_partitions_that_differ_in_any_fact_relevant_to_elections_are_decided_separately() -> None:
    context = context_of("23")
    may, may_not = context.add_topic("may", None), context.add_topic("may-not", None)
    first, second = (context.add_partition(may, n, ReplicaAssignment(ids("123"))) for n in range(2))
    turned = context.add_partition(may, 2, ReplicaAssignment(ids("132")))
    clean = context.add_partition(may_not, 0, ReplicaAssignment(ids("123")))
    stored = {
        first: LeaderAndIsr(BrokerId(1), 4, ids("123"), 7),
        second: LeaderAndIsr(BrokerId(1), 4, ids("1"), 7),
        turned: LeaderAndIsr(BrokerId(1), 4, ids("123"), 7),
        clean: LeaderAndIsr(BrokerId(1), 4, ids("1"), 7),
    }

    plan = plan_elections(context, stored, elect_offline, frozenset({"may"}))

    assert {p: (w.leader, w.isr) for p, w in plan.writes.items()} == {
        first: (2, (2, 3)),
        second: (2, (2,)),
        turned: (3, (2, 3)),
    }
    assert plan.refused == {clean: "no replica is eligible to be leader"}
    assert plan.decided[clean].rejected == ((1, "not live"), (2, "not in the ISR"), (3, "not in the ISR"))


def test_a_new_reassignment_target_restricts_only_the_election_of_its_own_partition() -> None:
    context = context_of("123")
    topic = context.add_topic("a", None)
    moving, other = (context.add_partition(topic, n, ReplicaAssignment(ids("123"))) for n in range(2))
    stored = {p: LeaderAndIsr(BrokerId(1), 0, ids("123"), 7) for p in (moving, other)}

    plan = plan_elections(context, stored, elect_for_reassignment, staying={moving: ids("23")})

    assert [plan.writes[p].leader for p in (moving, other)] == [2, 1]


def test_the_result_of_elections_has_reasons_only_for_decided_partitions() -> None:
    context = context_of("2")
    topic = context.add_topic("a", None)
    newer, nobody = (context.add_partition(topic, n, ReplicaAssignment(ids("12"))) for n in range(2))
    stored = {
        newer: LeaderAndIsr(BrokerId(1), 4, ids("12"), 8),
        nobody: LeaderAndIsr(BrokerId(1), 4, ids("1"), 7),
    }

    plan = plan_elections(context, stored, elect_offline)

    assert plan.reasons(plan.refused) == {nobody: ((1, "not live"), (2, "not in the ISR"))}


def test_the_reasons_of_an_election_among_all_replicas_name_those_that_a_reassignment_removes() -> None:
    given = facts("2341", "2", live="1", target="23")

    assert [broker for broker, _ in rejected_candidates(given, BrokerId(1))] == [2, 3, 4]
    assert [broker for broker, _ in rejected_candidates(given, None, is_of_target=True)] == [2, 3]
