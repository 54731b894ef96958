"""Controllers as the simulation sees them: unexpected errors, and how one replaces another."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace

import pytest
from tests.support.controller_room import Room
from tests.unit.sim.histories import history_of

from klamm.controller.events import BrokerChange
from klamm.controller.settings import ControllerSettings, parse_ibp
from klamm.controller.states import ReplicaState
from klamm.model.ids import BrokerId
from klamm.sim.cluster import run_script
from klamm.sim.history.history import History
from klamm.sim.history.trace import Event, EventEnded, ReplicaMoved, Term, TopicZnode, UnexpectedError
from klamm.sim.invariants.controllers import controllers_have_no_unexpected_errors, live_replicas_begin_online
from klamm.sim.invariants.memory import memory_equals_zookeeper
from klamm.sim.nodes.controller_observer import ControllerObserver
from klamm.sim.nodes.settings import writes_isrs_itself
from klamm.sim.scripts.operations import script_of

FOUND = {"a mistake": (KeyError("t1"), True), "no memory": (MemoryError(), False)}


@pytest.mark.parametrize(("error", "is_found"), FOUND.values(), ids=FOUND)
def test_an_unexpected_controller_error_other_than_memory_error_is_a_violation(
    error: Exception, is_found: bool
) -> None:
    wrong = controllers_have_no_unexpected_errors(History(), UnexpectedError(BrokerId(1), error, "here"))

    assert bool(wrong) is is_found


@pytest.mark.parametrize("is_stopped", [False, True], ids=["event ends", "node stops"])
async def test_the_simulation_records_controller_events_interrupted_by_the_end_of_the_node(is_stopped: bool) -> None:
    found: list[bool] = []

    def hear(event: Event) -> None:
        assert isinstance(event, EventEnded)
        found.append(event.is_cut_short)

    observer = ControllerObserver(BrokerId(1), 1, ControllerSettings(BrokerId(1)), hear)

    with suppress(asyncio.CancelledError):
        try:
            if is_stopped:
                raise asyncio.CancelledError
        finally:
            observer.on_event_end(BrokerChange())

    assert found == [is_stopped]


def test_a_simulated_controller_reelect_makes_the_chosen_broker_controller() -> None:
    outcome = run_script(script_of("controllership is handed over"), with_story=True)

    assert outcome.violation is None
    assert any("Elected epoch=2" in line and "broker=2" in line for line in outcome.story)


def test_a_simulated_controller_with_memory_error_resigns_and_another_is_elected() -> None:
    outcome = run_script(script_of("a controller runs out of memory"), with_story=True)

    assert outcome.violation is None
    assert b"MemoryError" in outcome.journal
    assert any("Elected epoch=2" in line for line in outcome.story)


UNTOLD = {
    "its leader wrote and died": ("2.6-IV0", False, True),
    "the same, and its topic is to be deleted": ("2.6-IV0", True, False),
    "its topic is to be deleted, and only controllers write": ("3.9-IV0", True, True),
}


@pytest.mark.parametrize(("protocol", "is_dying", "is_found"), UNTOLD.values(), ids=UNTOLD)
async def test_outdated_controller_memory_is_a_violation_unless_a_leader_wrote_a_deleted_topic(
    protocol: str, is_dying: bool, is_found: bool
) -> None:
    room = await Room.open([1], {"a": [(1,)]}, ControllerSettings(BrokerId(1), ibp=parse_ibp(protocol)))
    context, partition = room.term.context, room.partition("a-0")
    remembered = partition.leadership
    assert remembered is not None
    history = history_of(controllers={"terms": {1: Term(BrokerId(1), 1, 1, room.term.settings)}})
    history.at.leaders_write_isrs = writes_isrs_itself(protocol)
    history.topics.znodes["a"] = TopicZnode(context.topics["a"].id, {0: partition.assignment}, 0)
    history.states.versions[partition.key] = [remembered, remembered._replace(partition_epoch=1)]
    history.registrations.current[BrokerId(1)] = (context.registered[BrokerId(1)].epoch, 0)
    node = SimpleNamespace(number=BrokerId(1), controller=SimpleNamespace(term=room.term))
    if is_dying:
        context.queue_deletion(["a"])

    wrong = memory_equals_zookeeper(SimpleNamespace(history=history, running=[node]))

    assert (wrong is not None and wrong.startswith("a-0: the controller remembers")) is is_found


@pytest.mark.parametrize(
    ("adding", "is_found"), [((), True), ((BrokerId(2),), False)], ids=["deletion", "reassignment"]
)
async def test_only_a_reassignment_that_adds_a_replica_moves_it_from_ineligible_to_online(
    adding: tuple[BrokerId, ...], is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await Room.open([1, 2], {"a": [(1, 2)]})
    history, term = History(), Term(BrokerId(1), 1, 1, room.term.settings)
    monkeypatch.setattr(type(history.broker_views), "is_registered_throughout", lambda *asked: True)
    assignment = room.partition("a-0").assignment._replace(adding=adding)
    history.topics.znodes["a"] = TopicZnode(room.term.context.topics["a"].id, {0: assignment}, 0)
    before, after = ReplicaState.DELETION_INELIGIBLE, ReplicaState.ONLINE

    wrong = live_replicas_begin_online(history, ReplicaMoved(term, BrokerId(2), room.partition("a-0"), before, after))

    assert (wrong is not None) is is_found
