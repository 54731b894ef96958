"""Draws scripts from a seed: what members, producers and an operator do, mostly sensible and sometimes wrong."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from tests.differential.coordinators import group_actions, transaction_actions
from tests.differential.coordinators.draft import HEARTBEAT, Draft
from tests.differential.coordinators.script import OPERATOR, Script

from klamm.coordinator.topic_partitions import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

TOPIC_EVERY: Final = 25


def draw(seed: int, restart: str | None = None) -> Script:
    """The script of a seed. One in three has timers that expire, one in 25 ends with the deletion of its topic.

    `restart` restarts the brokers in its middle instead.
    """
    rng = Random(seed)
    draft = Draft(rng, uses_timers=seed % 3 == 0)
    subjects = rng.choice(_SUBJECTS)
    weights = {action: weight for subject in (*subjects, _MOVES) for action, weight in subject.items()}
    if group_actions.WEIGHTS in subjects:
        group_actions.rebalance(draft)
    count = rng.randint(8, 22)
    restarts_at = count // 2 if restart else count
    while len(draft.steps) < count:
        if len(draft.steps) >= restarts_at:
            restarts_at = count
            _restart(draft, str(restart))
        rng.choices(list(weights), list(weights.values()))[0](draft)
    if seed % TOPIC_EVERY == 0 and restart is None:
        rng.choice((group_actions, transaction_actions)).delete_a_topic(draft)
    return Script(seed, tuple(draft.steps))


def _move(d: Draft) -> None:
    d.add(OPERATOR, "move", topic=d.rng.choice((OFFSETS_TOPIC, TRANSACTIONS_TOPIC)))


def _restart(d: Draft, how: str) -> None:
    """Both brokers restart, one after the other; members go on with what was stored."""
    d.add(OPERATOR, "restart", how=how)
    for who in d.joined:
        d.add(who, "heartbeat", v=d.version(HEARTBEAT))


_Weights = Mapping[Callable[[Draft], Any], int]
_MOVES: Final[_Weights] = {_move: 1}
_SUBJECTS: Final[tuple[tuple[_Weights, ...], ...]] = (
    (group_actions.WEIGHTS,),
    (group_actions.WEIGHTS,),
    (transaction_actions.WEIGHTS,),
    (group_actions.WEIGHTS, transaction_actions.WEIGHTS),
)
