"""Leaders as the simulation sees them: unclean elections that were allowed when they were decided."""

from dataclasses import replace

import pytest
from tests.support.controller_room import Room
from tests.unit.sim.histories import history_of

from klamm.controller.events import UncleanLeaderElectionEnable
from klamm.controller.settings import ControllerSettings
from klamm.model.ids import BrokerId
from klamm.sim.history.history import History
from klamm.sim.history.trace import EventBegan, EventEnded, StateWritten, Term
from klamm.sim.invariants.leaders import elections_are_clean

ONE, TWO = BrokerId(1), BrokerId(2)
EVENT = UncleanLeaderElectionEnable()


@pytest.mark.parametrize(("was_allowed", "is_found"), [(True, False), (False, True)])
async def test_unclean_election_begun_while_allowed_may_finish_after_it_is_disabled(
    was_allowed: bool, is_found: bool
) -> None:
    room, term, history = await begun(was_allowed)

    history.controllers.forbid_unclean_by_default()
    forbid_by_acl(room)

    assert is_unclean(room, history) is is_found
    history.absorb(EventEnded(ONE, 1, term, EVENT, None, False))
    assert is_unclean(room, history)


async def test_topic_config_that_forbids_unclean_election_overrides_the_broker_default() -> None:
    room, _, history = await begun(True)
    history.topics.unclean["a"] = False

    history.controllers.forbid_unclean_by_default()
    forbid_by_acl(room)

    assert is_unclean(room, history)


async def begun(is_allowed: bool) -> tuple[Room, Term, History]:
    """A controller that is handling an event while unclean elections are allowed or not."""
    settings = ControllerSettings(ONE, unclean_leader_election=is_allowed)
    room = await Room.open([1, 2], {"a": [(1, 2)]}, settings)
    room.client.last_seen_zxid = 0
    term = Term(ONE, 1, room.term)
    epoch = room.term.context.epoch
    history = history_of(controllers={"epoch": epoch, "terms": {epoch: term}})
    history.absorb(EventBegan(ONE, 1, term, EVENT, ()))
    return room, term, history


def forbid_by_acl(room: Room) -> None:
    room.term.settings = replace(room.term.settings, unclean_leader_election=False)


def is_unclean(room: Room, history: History) -> bool:
    """Whether the invariant reports an election of broker 2, which is outside the ISR."""
    partition = room.partition("a-0")
    assert partition.leadership is not None
    before = partition.leadership._replace(leader=BrokerId(-1), isr=(ONE,))
    after = before._replace(leader=TWO, isr=(TWO,))
    return elections_are_clean(history, StateWritten(partition.key, before, after, (), 0)) is not None
