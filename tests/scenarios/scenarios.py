"""The scenarios: the topics, the actions and faults, and the partitions to explain.

Times are virtual seconds. To add one, put it into `SCENARIOS`, run `make transcripts`, and read what it wrote.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from klamm.sim.scripts.options import Options
from klamm.sim.scripts.script import ScheduledAction, Script

FIRST_FAULT_S: Final = 20.0


class Scenario(NamedTuple):
    about: str
    actions: Sequence[ScheduledAction]
    explained: Sequence[str]
    """Partitions that are explained at the end."""
    heal_at_s: float = 60.0

    @property
    def script(self) -> Script:
        return Script(Options.plain(), [*_TOPICS, *self.actions], self.heal_at_s)


_TOPICS: Final = (
    ScheduledAction(6.0, "create topic", {"topic": "t1", "replicas": [[1, 2, 3], [2, 3, 1], [3, 1, 2]]}),
    ScheduledAction(6.5, "create topic", {"topic": "t2", "replicas": [[1], [3]]}),
)


def _at(after_s: float, what: str, facts: dict[str, object]) -> ScheduledAction:
    return ScheduledAction(FIRST_FAULT_S + after_s, what, facts)


SCENARIOS: Final[dict[str, Scenario]] = {
    "a broker dies": Scenario(
        "Node 3 is killed and restarted half a minute later. t2-1 has no other replica.",
        [_at(0, "kill", {"node": 3, "back_s": 30.0})],
        ["t1-2", "t2-1"],
    ),
    "a broker restarts at once": Scenario(
        "Node 3 is killed and restarted at once. It has to wait until its old session expires.",
        [_at(0, "kill", {"node": 3, "back_s": 0.1})],
        ["t1-2"],
    ),
    "the controller dies": Scenario(
        "Node 1 is controller and is killed. Another node becomes controller and then finds that a broker is dead.",
        [_at(0, "kill", {"node": 1, "back_s": 30.0})],
        ["t1-2"],
    ),
    "the controller is paused": Scenario(
        "Node 1 is the controller and is paused for longer than its session timeout. It resumes as an ordinary broker.",
        [_at(0, "pause", {"node": 1, "for_s": 10.0})],
        ["t1-2"],
    ),
    "a node shuts down": Scenario(
        "Node 2 makes a controlled shutdown: its leaders move, it ends, and it is restarted five seconds later.",
        [_at(0, "controlled shutdown", {"node": 2, "back_s": 5.0, "session_ends": "", "lingers_s": 0.0})],
        ["t1-1"],
    ),
    "ZooKeeper is down": Scenario(
        "The only ZooKeeper server is down for ten seconds. A broker that dies meanwhile is noticed afterwards.",
        [
            _at(0, "restart server", {"servers": [0], "for_s": 10.0}),
            _at(2, "kill", {"node": 3, "back_s": 30.0}),
        ],
        ["t1-2"],
    ),
    "a log directory fails": Scenario(
        "A log directory of node 2 fails with two replicas, one of them a leader; it is replaced ten seconds later.",
        [_at(0, "fail log dir", {"node": 2, "replicas": [["t1", 0], ["t1", 1]], "back_s": 10.0})],
        ["t1-1"],
    ),
    "a topic is deleted without a broker": Scenario(
        "While node 3 is dead, t1 is deleted and created again on the others. Node 3 deletes its old replicas later.",
        [_at(0, "delete without a node", {"node": 3, "away_s": 30.0, "topics": ["t1"], "again": [[1, 2], [2, 1]]})],
        ["t1-0", "t1-2"],
    ),
    "a reassignment survives the controller": Scenario(
        "t2-0 is reassigned from node 1 to node 2, and the controller dies when the new replica joins the ISR.",
        [
            _at(0, "at step", {"kind": "write", "number": 3, "what": "crash after"}),
            _at(0, "reassign", {"targets": {"t2-0": [2]}}),
        ],
        ["t2-0"],
    ),
}
