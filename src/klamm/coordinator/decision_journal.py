"""The coordinators' decisions in the node's journal: what happened to a group or a transaction, and what caused it.

One line per decision, none per heartbeat or commit. Lines are written to the file soon, in one piece; each kind has a
budget, so that a busy application does not displace the rest of the journal.
"""

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

from klamm.coordinator.group import Group
from klamm.coordinator.member import Member
from klamm.coordinator.records import read_assignment
from klamm.model.ids import TopicPartition
from klamm.telemetry.journal import Journal, by_topic

GROUP: Final = "group"
TRANSACTION: Final = "transaction"
COORDINATED_PARTITION: Final = "coordinated-partition"
SUPPRESSED: Final = "suppressed"

FLUSH_DELAY_S: Final = 0.2
MAX_LISTED: Final = 50
"""Members and partitions that one line lists."""
MAX_ASSIGNMENT_BYTES: Final = 16 * 1024
"""Of all members in a line; assignments beyond are not decoded, because that would hold the event loop."""


class Budget(NamedTuple):
    """Lines per second over long times, and how many at once."""

    rate: float
    burst: int


GROUPS: Final = Budget(50, 5_000)
ROUTINE: Final = Budget(10, 1_000)
"""Of transactions that go as usual."""
EXCEPTIONS: Final = Budget(20, 2_000)
"""Of transactions that do not."""


class _Meter:
    """Counts lines against a budget."""

    def __init__(self, budget: Budget, now_s: float) -> None:
        self._budget = budget
        self._left: float = budget.burst
        self._at_s = now_s
        self.suppressed = 0

    def take(self, now_s: float) -> bool:
        """Take one line from the budget; False, and the line is counted as suppressed, where none is left."""
        self._left = min(self._budget.burst, self._left + (now_s - self._at_s) * self._budget.rate)
        self._at_s = now_s
        if self._left < 1:
            self.suppressed += 1
            return False
        self._left -= 1
        return True


class RebalanceCause(NamedTuple):
    """Why a group rebalances, and which member caused it."""

    what: str
    """For example `member joined`."""
    reason: str
    member: Member | None = None

    def __str__(self) -> str:
        return self.reason


class DecisionJournal:
    """Writes the lines of one node's coordinators; without a journal nothing is written. `close` writes the last."""

    def __init__(self, journal: Journal | None = None) -> None:
        self._journal = journal if journal is not None and journal.is_kept else None
        self._meters: dict[Budget, _Meter] = {}
        self._flush: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Write the buffered lines."""
        if self._flush is not None:
            self._flush.cancel()
            self._write_buffered()

    # ---- groups

    def rebalance(self, group: Group, cause: RebalanceCause) -> None:
        """Write that a rebalance begins; later lines about the group name it as their cause."""
        facts = {"what": cause.what, "why": cause.reason, "generation": group.generation, "members": len(group.members)}
        group.journal_cause = self._begin(GROUP, GROUPS, group=group.group_id, step="rebalance", **facts,
                                          **_member_facts(cause.member))  # fmt: skip

    def waiting(self, group: Group, missing: Iterable[tuple[Member, int]]) -> None:
        """Write that a rebalance has been waiting for these members for a while, and since when each is silent (ms)."""
        listed = [
            {**_member_facts(member), "silent_ms": silent_ms} for member, silent_ms in islice(missing, MAX_LISTED)
        ]
        self._group(group, "waiting", missing=listed)

    def removed(self, group: Group, member: Member, why: str) -> None:
        """Write that a member was removed from the group, and why."""
        self._group(group, "removed", why=why, **_member_facts(member))

    def generation(self, group: Group) -> None:
        """Write that a generation begins with the group's members; `assigned` writes its assignment."""
        self._group(group, "generation", generation=group.generation, members=len(group.members),
                    leader=group.leader_id, protocol=group.protocol_name)  # fmt: skip

    def assigned(self, group: Group) -> None:
        """Write that the leader's assignment is stored: which partitions each member has from now on."""
        if self._journal is None:
            return
        shown = list(group.members.values())[:MAX_LISTED]
        owners = []
        left = MAX_ASSIGNMENT_BYTES if group.is_consumer_group else 0
        for member in shown:
            left -= len(member.assignment)
            partitions = read_assignment(member.assignment) if left >= 0 else {}
            owners.append({**_member_facts(member), "partitions": partitions})
        self._group(group, "assigned", generation=group.generation, owners=owners,
                    omitted=len(group.members) - len(shown))  # fmt: skip

    def replaced(self, group: Group, member: Member, old_member_id: str) -> None:
        """Write that a static member has a new member id, without a rebalance."""
        self._group(group, "static member replaced", old_member=old_member_id, **_member_facts(member))

    def group_step(self, group: Group, step: str, **facts: Any) -> None:
        """Write any other decision about a group; `step` names it."""
        self._group(group, step, **facts)

    def offsets_removed(self, group: Group, why: str, partitions: Iterable[TopicPartition]) -> None:
        """Write that committed offsets were removed, and why: they expired, or their partitions were deleted."""
        if self._journal is None:
            return
        removed = sorted(partitions)
        if removed:
            listed = by_topic(removed[:MAX_LISTED])
            self._group(group, "offsets removed", why=why, count=len(removed), partitions=listed)

    def _group(self, group: Group, step: str, **facts: Any) -> None:
        """Write a line about a group, with the rebalance that caused it."""
        self._line(group.journal_cause, GROUP, GROUPS, group=group.group_id, step=step, **facts)

    # ---- transactions

    def transaction(self, transactional_id: str, step: str, *, is_routine: bool = True, **facts: Any) -> None:
        """Write a decision about a transaction.

        With `is_routine`, all went as the producer asked; fewer of such lines are written.
        """
        budget = ROUTINE if is_routine else EXCEPTIONS
        self._line("", TRANSACTION, budget, transactional_id=transactional_id, step=step, **facts)

    # ---- partitions of the coordinators' topics

    def partition(self, topic: str, number: int, step: str, **facts: Any) -> None:
        """Write that this broker loaded or unloaded a partition of `__consumer_offsets` or `__transaction_state`."""
        self._line("", COORDINATED_PARTITION, GROUPS, topic=topic, partition=number, step=step, **facts)

    # ---- lines

    def _begin(self, kind: str, budget: Budget, **facts: Any) -> str:
        """Write a line that is the cause of later ones and return its id; empty where the budget allowed no line."""
        if self._journal is None or not self._has_room(self._journal, budget):
            return ""
        self._flush_soon()
        return self._journal.begin(kind, **facts)

    def _line(self, cause: str, kind: str, budget: Budget, **facts: Any) -> None:
        """Write a line, if the budget of lines per second allows it."""
        if self._journal is not None and self._has_room(self._journal, budget):
            self._journal.line(cause, kind, **facts)
            self._flush_soon()

    def _has_room(self, journal: Journal, budget: Budget) -> bool:
        """Whether the budget allows another line; the first after a pause says how many were left out."""
        now_s = asyncio.get_running_loop().time()
        meter = self._meters.get(budget)
        if meter is None:
            meter = self._meters[budget] = _Meter(budget, now_s)
        if not meter.take(now_s):
            return False
        if meter.suppressed:
            journal.line("", SUPPRESSED, lines=meter.suppressed, why=f"more than {budget.rate:g} lines a second")
            meter.suppressed = 0
        return True

    def _flush_soon(self) -> None:
        """Write the buffered lines after a moment, together with those that come until then."""
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(FLUSH_DELAY_S, self._write_buffered)

    def _write_buffered(self) -> None:
        """Write the buffered lines to the file."""
        self._flush = None
        assert self._journal is not None
        self._journal.flush()


def _member_facts(member: Member | None) -> dict[str, Any]:
    """Return what a journal line says about a group member: its id, instance id, client and host."""
    if member is None:
        return {}
    facts = {"member": member.member_id, "client": member.client_id, "host": member.client_host}
    return facts if member.instance_id is None else {**facts, "instance": member.instance_id}
