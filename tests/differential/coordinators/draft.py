"""A script that is being drawn: the dice, the versions of the APIs, and what members should be doing."""

from random import Random
from typing import Any, Final

from tests.differential.coordinators.script import DYNAMIC, PRODUCERS, STATIC, Step

JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT, FETCH = 9, 5, 4, 5, 9, 9
DESCRIBE, LIST, DELETE, INIT, ADD, ADD_OFFSETS, END = 5, 5, 2, 5, 5, 4, 4
TXN_COMMIT, PRODUCE_MIN, PRODUCE, LIST_TRANSACTIONS, MARK = 4, 3, 11, 1, 1
STATIC_SINCE: Final = 5
"""The version of JoinGroup from which on there are static members."""
SHORT_MS: Final = 3_000
MARGIN_S: Final = 3.5
"""How much longer than a timer a script waits, and how long a timer is at least: load must not decide."""
MEMBERS: Final = (*DYNAMIC, *STATIC)


class Draft:
    """A script that is being drawn, and what its members should be doing."""

    def __init__(self, rng: Random, *, uses_timers: bool) -> None:
        self.rng = rng
        self.uses_timers = uses_timers
        self.steps: list[Step] = []
        self.joined: list[str] = []
        """In the group, if all went well."""

    def add(self, who: str, verb: str, **options: Any) -> None:
        self.steps.append(Step(who, verb, options))

    def one_in(self, count: int) -> bool:
        return self.rng.randrange(count) == 0

    def version(self, newest: int, oldest: int = 0) -> int:
        return self.rng.choice((newest, self.rng.randint(oldest, newest)))

    def some_member(self) -> str:
        return self.rng.choice(self.joined if self.joined and not self.one_in(6) else MEMBERS)

    def some_producer(self) -> str:
        return self.rng.choice(list(PRODUCERS))
