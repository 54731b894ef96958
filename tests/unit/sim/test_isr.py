"""In-sync replicas as the simulation sees them: dead members."""

import pytest
from tests.support.controller_room import Room
from tests.unit.sim.histories import history_of

from klamm.controller.events import BrokerChange, Startup
from klamm.controller.settings import ControllerSettings, parse_ibp
from klamm.model.ids import BrokerId
from klamm.sim.history.trace import EventBegan, EventEnded, StateWritten, Term
from klamm.sim.invariants.isr import the_dead_have_left
from klamm.sim.nodes.controller_observer import BrokerKnowledge

BEGAN = 5
OLD, NEW = "2.6-IV0", "3.9-IV0"
MEMBERS = {
    "it went": (OLD, 4, True, True),
    "it went, and only controllers write ISRs": (NEW, 4, True, True),
    "its leader took it in again after the controller had put it out": (OLD, 6, True, False),
    "the controller saw it neither come nor go": (OLD, 4, False, False),
    "who only controllers could have let in": (NEW, 6, False, True),
}


@pytest.mark.parametrize(("protocol", "entered", "was_known", "is_found"), MEMBERS.values(), ids=MEMBERS)
async def test_unregistered_isr_member_is_a_violation_unless_its_leader_added_it(
    protocol: str, entered: int, was_known: bool, is_found: bool
) -> None:
    """After a change of brokers; `entered` is the zxid at which it came into the ISR."""
    room = await room_of(protocol)
    term = Term(BrokerId(1), 1, room.term)
    known = BrokerKnowledge({BrokerId(3): 1} if was_known else {}, 0)

    assert (
        is_left_behind(room, term, entered, EventEnded(BrokerId(1), 1, term, BrokerChange(), known, False)) is is_found
    )


@pytest.mark.parametrize(("entered", "is_found"), [(4, True), (6, False)])
async def test_failover_must_remove_isr_members_that_were_dead_when_it_began(entered: int, is_found: bool) -> None:
    room = await room_of(OLD)

    ended = EventEnded(BrokerId(1), 1, None, Startup(), None, False)

    assert is_left_behind(room, Term(BrokerId(1), 1, room.term), entered, ended) is is_found


async def room_of(protocol: str) -> Room:
    """A controller of this protocol version with one partition."""
    return await Room.open([1], {"a": [(1, 3)]}, ControllerSettings(BrokerId(1), ibp=parse_ibp(protocol)))


def is_left_behind(room: Room, term: Term, entered: int, ended: EventEnded) -> bool:
    """Whether the invariant reports broker 3, an ISR member that the controller does not know."""
    context, partition = room.term.context, room.partition("a-0")
    assert partition.leadership is not None
    after = partition.leadership._replace(isr=(BrokerId(1), BrokerId(3)))
    context.put_leadership(partition, after)
    history = history_of(controllers={"epoch": context.epoch, "terms": {context.epoch: term}})
    performed = {
        entered: StateWritten(partition.key, partition.leadership._replace(isr=(BrokerId(1),)), after, (), 0),
        BEGAN: EventBegan(BrokerId(1), 1, ended.term, ended.event, ()),
    }
    for zxid in sorted(performed):
        history.at.zxid = zxid
        history.absorb(performed[zxid])
    return the_dead_have_left(history, ended) is not None
