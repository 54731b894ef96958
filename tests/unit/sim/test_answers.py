"""Answers as the simulation sees them: which of them are true."""

import pytest
from tests.unit.sim.histories import history_of
from tests.unit.sim.test_registrations import BROKER

from klamm.controller.decisions.features import FeatureAnswer, FeatureUpdate
from klamm.controller.decisions.plans import Refusal
from klamm.controller.events import (
    AllocateProducerIds,
    ApiPartitionReassignment,
    ElectionAnswer,
    ProducerIds,
    ReassignmentAnswer,
    ReplicaLeaderElection,
    UpdateFeatures,
)
from klamm.controller.settings import ControllerSettings, Ibp
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.history import History
from klamm.sim.history.trace import EventEnded, RegistrationChanged, RegistrationWritten, Term, TopicZnode
from klamm.sim.invariants.answers import (
    election_answers_match_zookeeper,
    feature_answers_match_zookeeper,
    producer_ids_are_given_once,
    reassignment_answers_match_zookeeper,
)
from klamm.sim.zookeeper.tree import CreateChange, SetChange
from klamm.zk import znodes
from klamm.zk.admin_znodes import FinalizedFeatures, encode_features
from klamm.zk.registrations import FeatureRange, encode_registration

ONE, TWO = BrokerId(1), BrokerId(2)
P = TopicPartition("a", 0)
TERM = Term(ONE, 1, 1, ControllerSettings(ONE))
NONE, STALE = ErrorCode.NONE, ErrorCode.STALE_BROKER_EPOCH
IDS = {
    "the next block": (5, ProducerIds(NONE, 1000, 1000), False),
    "a block that overlaps": (5, ProducerIds(NONE, 999, 1000), True),
    "an earlier run": (4, ProducerIds(STALE), False),
    "an earlier run that gets a block": (4, ProducerIds(NONE, 1000, 1000), True),
    "this run is called stale": (5, ProducerIds(STALE), True),
    "this run is called unregistered": (5, ProducerIds(ErrorCode.BROKER_ID_NOT_REGISTERED), True),
}


@pytest.mark.parametrize(("broker_epoch", "answer", "is_found"), IDS.values(), ids=IDS)
async def test_the_simulation_reports_producer_id_blocks_allocated_twice_or_to_unregistered_brokers(
    broker_epoch: int, answer: ProducerIds, is_found: bool
) -> None:
    history = History()
    history.absorb(RegistrationChanged(TWO, 5, 7))
    history.absorb(RegistrationWritten(TWO, encode_registration(BROKER, 0)))
    history.answers.producer_id_blocks[0] = 1000, ONE
    asked = AllocateProducerIds(TWO, broker_epoch)
    asked.answer(answer)

    assert (producer_ids_are_given_once(history, EventEnded(ONE, 1, TERM, asked)) is not None) is is_found


NOT_NEEDED, NOT_AVAILABLE = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
ELECTIONS = {
    "the preferred replica leads, and is said to": (1, {P: ONE}, None, False),
    "it leads, and another is said to": (1, {P: TWO}, None, True),
    "another leads, and is said to": (2, {P: TWO}, None, True),
    "it leads already": (1, {}, NOT_NEEDED, False),
    "it does not, and is said to lead already": (2, {}, NOT_NEEDED, True),
    "it cannot lead": (2, {}, NOT_AVAILABLE, False),
    "it leads, and is said not to be able to": (1, {}, NOT_AVAILABLE, True),
    "there is no answer": (1, {}, None, True),
}


@pytest.mark.parametrize(("leader", "leaders", "error", "is_found"), ELECTIONS.values(), ids=ELECTIONS)
async def test_an_elect_leaders_response_that_differs_from_zookeeper_is_a_violation(
    leader: int, leaders: dict[TopicPartition, BrokerId], error: ErrorCode | None, is_found: bool
) -> None:
    history = History()
    history.controllers.epoch = 1
    history.topics.znodes["a"] = TopicZnode(None, {0: ReplicaAssignment((ONE, TWO))}, 1)
    history.states.versions[P] = [LeaderAndIsr(BrokerId(leader), 1, (ONE, TWO), 1, 0)]
    asked = ReplicaLeaderElection([P], False)
    asked.answer(ElectionAnswer(leaders, {P: Refusal(error, "")} if error is not None else {}))

    assert (election_answers_match_zookeeper(history, EventEnded(ONE, 1, TERM, asked)) is not None) is is_found


MOVES = {
    "the leader leaves, another in-sync replica lives": ({}, (TWO,), True),
    "it leaves alone": ({}, (BrokerId(3),), False),
    "ZooKeeper refused a write": ({"refused": {ONE}}, (TWO,), False),
}


@pytest.mark.parametrize(("controllers", "target", "is_found"), MOVES.values(), ids=MOVES)
async def test_a_move_that_cannot_begin_is_a_violation_unless_a_write_was_refused_or_no_replica_can_lead(
    controllers: dict[str, set[BrokerId]], target: tuple[BrokerId, ...], is_found: bool
) -> None:
    history = history_of(controllers={"epoch": 1, **controllers})
    for broker in (ONE, TWO):
        history.absorb(RegistrationChanged(broker, 5, 7))
        history.absorb(RegistrationWritten(broker, encode_registration(BROKER, 0)))
    isr = (ONE, TWO) if TWO in target else (BrokerId(4),)
    history.topics.znodes["a"] = TopicZnode(None, {0: ReplicaAssignment((ONE, TWO))}, 1)
    history.states.versions[P] = [LeaderAndIsr(ONE, 1, isr, 1, 0)]
    asked = ApiPartitionReassignment({P: target})
    asked.answer(ReassignmentAnswer(NONE, {P: Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "")}))

    assert (reassignment_answers_match_zookeeper(history, EventEnded(ONE, 1, TERM, asked)) is not None) is is_found


FEATURE = "group.version"
RANGES = {FEATURE: FeatureRange(2, 4)}
REFUSED = (ErrorCode.INVALID_REQUEST, "no")
FEATURE_ANSWERS = {
    "accepted, and in ZooKeeper": (3, {FEATURE: (NONE, None)}, 1, False),
    "accepted, and not in ZooKeeper": (4, {FEATURE: (NONE, None)}, 1, True),
    "accepted before another write": (4, {FEATURE: (NONE, None)}, 0, False),
    "no answer": (3, {}, None, True),
    "refused, the same level": (3, {FEATURE: REFUSED}, None, False),
    "refused, a level that nodes do not support": (5, {FEATURE: REFUSED}, None, False),
    "refused, although it is valid": (4, {FEATURE: REFUSED}, None, True),
    "refused, a downgrade that is not called one": (2, {FEATURE: REFUSED}, None, False),
}


@pytest.mark.parametrize(("level", "results", "epoch", "is_found"), FEATURE_ANSWERS.values(), ids=FEATURE_ANSWERS)
async def test_the_simulation_compares_answers_about_features_with_zookeeper(
    level: int, results: dict[str, tuple[ErrorCode, str | None]], epoch: int | None, is_found: bool
) -> None:
    history = History()
    content = encode_features(FinalizedFeatures(2, True, {FEATURE: 3}))
    history.tree.apply(CreateChange(znodes.FEATURE, content, (), 0), 1, 0)
    history.tree.apply(SetChange(znodes.FEATURE, content), 2, 0)
    history.registrations.features[2] = content
    event = UpdateFeatures([FeatureUpdate(FEATURE, level)])
    event.answer(FeatureAnswer(NONE, None, results, epoch))
    term = Term(ONE, 1, 1, ControllerSettings(ONE, supported_features=RANGES))

    assert (feature_answers_match_zookeeper(history, EventEnded(ONE, 1, term, event)) is not None) is is_found


@pytest.mark.parametrize(
    ("ibp", "error", "is_found"),
    [((3, 9, 0), NONE, False), ((2, 6, 0), NONE, True), ((3, 9, 0), REFUSED[0], True), ((2, 6, 0), REFUSED[0], False)],
)
async def test_features_are_refused_as_a_whole_only_before_protocol_version_2_7(
    ibp: Ibp, error: ErrorCode, is_found: bool
) -> None:
    event = UpdateFeatures([])
    event.answer(FeatureAnswer(error))
    ended = EventEnded(ONE, 1, Term(ONE, 1, 1, ControllerSettings(ONE, ibp=ibp)), event)

    assert (feature_answers_match_zookeeper(History(), ended) is not None) is is_found
