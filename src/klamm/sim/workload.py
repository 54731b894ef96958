"""What operators and brokers do while faults happen. Each verb is a coroutine; to add one, put it into `VERBS`.

A verb draws what it decides, each decision under a name, tells the story, and acts. It runs beside other verbs. What a
cluster in trouble answers (KlammError, no answer in time) is part of the story; any other error is a finding.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from klamm.broker.replica_placement import place_replicas
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId
from klamm.model.topic_ids import new_topic_id
from klamm.runtime.randomness import Dice
from klamm.sim.stage import Draw, Stage
from klamm.zk.znodes import topic_path

Verb = Callable[[Stage, Draw], Awaitable[None]]

PATIENCE_S: Final = 15.0
"""How long a verb may take; whoever carried it out then gives up."""
_TOPICS: Final = tuple(f"t{n}" for n in range(1, 13))
"""Few names, so that they meet again."""


async def create_topic(stage: Stage, draw: Draw) -> None:
    """A new topic, its replicas placed as the broker's API places them."""
    unused = [t for t in _TOPICS if stage.ensemble.tree.get(topic_path(t)) is None]
    if not unused:
        return
    topic = draw("topic", lambda dice: unused[0])
    replicas = draw("replicas", lambda dice: _place(stage, dice))
    assignment = {n: ReplicaAssignment(tuple(map(BrokerId, r))) for n, r in enumerate(replicas)}
    stage.tell(f"topic {topic} is created: {replicas}")
    await stage.store.create_topic(topic, assignment, new_topic_id(stage.admin.randomness.bytes), {})


def _place(stage: Stage, dice: Dice) -> list[list[int]]:
    """Replicas of each partition."""
    brokers = dict.fromkeys(BrokerId(n) for n in stage.nodes)
    placed = place_replicas(brokers, dice.randint(1, 4), dice.randint(1, 3), dice)
    return [[int(b) for b in placed[n]] for n in range(len(placed))]


VERBS: Final[dict[str, Verb]] = {
    "create topic": create_topic,
}
