"""What `leaders_are_told` excuses: a broker whose return ZooKeeper interrupted is told when that event is retried."""

from tests.support.controller_room import Room
from tests.unit.sim.histories import history_of

from klamm.controller.events import UncleanLeaderElectionEnable
from klamm.controller.settings import ControllerSettings
from klamm.model.ids import BrokerId
from klamm.sim.history.trace import EventEnded, Term
from klamm.sim.invariants.orders import leaders_are_told

ONE, TWO = BrokerId(1), BrokerId(2)


async def test_broker_in_transition_may_be_told_of_a_leader_later_but_is_not_forgotten() -> None:
    room = await Room.open([1, 2], {"a": [(2, 1)]}, ControllerSettings(ONE))
    term = Term(ONE, 1, room.term)
    partition = room.partition("a-0")
    assert partition.leadership is not None
    history = history_of(
        controllers={"epoch": term.epoch, "terms": {term.epoch: term}},
        requests={"unannounced": {TWO: {partition.key: partition.leadership.leader_epoch}}},
    )
    ended = EventEnded(ONE, 1, term, UncleanLeaderElectionEnable(), None, False)

    room.term.context.brokers_in_transition[TWO] = None
    assert leaders_are_told(history, ended) is None

    room.term.context.brokers_in_transition.clear()  # the retried event has succeeded
    assert "broker 2 is not told" in (leaders_are_told(history, ended) or "")
