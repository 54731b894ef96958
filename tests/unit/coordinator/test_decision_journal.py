"""The journal of the coordinators: one line per decision with its cause, soon in the file, bounded."""

import asyncio
from typing import Any

import pytest
from tests.support.controller_room import ListSink
from tests.unit.coordinator import transactions_room
from tests.unit.coordinator.groups_room import GROUP, Room, play

from klamm.client.group_member import encoded_assignment
from klamm.coordinator.decision_journal import (
    FLUSH_DELAY_S,
    GROUPS,
    MAX_ASSIGNMENT_BYTES,
    MAX_LISTED,
    DecisionJournal,
)
from klamm.coordinator.group import Group
from klamm.coordinator.handlers.rebalance import LATE_JOIN_S
from klamm.coordinator.member import Member
from klamm.coordinator.requests import LeavingMember
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.sim.loop import SimulatedLoop
from klamm.sim.world import SimulatedClock
from klamm.telemetry.journal import Journal
from klamm.telemetry.journal_reader import Entry, parse_lines


def steps(entries: list[Entry]) -> list[str]:
    return [str(e.facts["step"]) for e in entries]


def rebalances(entries: list[Entry]) -> list[tuple[str, Any]]:
    """What began each rebalance, and who."""
    return [(e.facts["what"], e.facts.get("member")) for e in entries if e.facts["step"] == "rebalance"]


# ---- groups


def test_journal_lines_of_a_generation_and_assignment_name_the_rebalance_as_cause() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        begun, generation, assigned = await room.journaled()
        assert steps([begun, generation, assigned]) == ["rebalance", "generation", "assigned"]
        assert rebalances([begun]) == [("member joined", member.member_id)]
        assert (begun.facts["client"], begun.facts["host"]) == ("c0", "/127.0.0.1")
        assert begun.cause == generation.cause == assigned.cause != ""
        assert [o["member"] for o in assigned.facts["owners"]] == [member.member_id]

    play(body)


def test_heartbeats_write_no_journal_lines() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        before = len(await room.journaled())
        assert not room.groups.heartbeat(GROUP, member.member_id, None, member.generation)
        assert len(await room.journaled()) == before

    play(body)


def test_the_journal_names_the_leaving_member_that_caused_a_rebalance_and_removed_members() -> None:
    async def body(room: Room) -> None:
        patient = {"session_timeout_ms": 300_000}
        first, second, _ = await room.stable(3, **patient)
        room.groups.leave_group(GROUP, [LeavingMember(first.member_id, None, "shut down")])
        task = room.join(second.member_id, **patient)
        await asyncio.sleep(60.1)  # the rebalance timeout
        assert (await task).error is ErrorCode.NONE
        entries = await room.journaled()
        assert rebalances(entries)[-1] == ("member left", first.member_id)
        last = entries[-1].cause
        own = [e for e in entries if e.cause == last]
        assert steps(own)[:3] == ["rebalance", "waiting", "removed"]
        assert "shut down" in own[0].facts["why"]
        assert own[1].ts_ms - own[0].ts_ms == LATE_JOIN_S * 1000
        assert [m["silent_ms"] for m in own[1].facts["missing"]] == [own[1].ts_ms - own[0].ts_ms]
        assert own[2].facts["why"] == "it did not join within 60000 ms"

    play(body)


def test_the_journal_names_an_expired_member_session_as_the_cause_of_a_rebalance() -> None:
    async def body(room: Room) -> None:
        [member] = await room.stable()
        await asyncio.sleep(11)
        entries = await room.journaled()
        assert rebalances(entries)[-1] == ("session timeout", member.member_id)
        assert "no heartbeat came" in [e for e in entries if e.facts["step"] == "rebalance"][-1].facts["why"]
        assert steps(entries)[-1] == "empty"

    play(body)


def test_the_journal_names_a_missing_sync_group_as_the_cause_of_a_rebalance() -> None:
    async def body(room: Room) -> None:
        task = room.join(session_timeout_ms=300_000)
        await asyncio.sleep(4)
        late = (await task).member_id
        await asyncio.sleep(61)
        entries = await room.journaled()
        assert rebalances(entries)[-1] == ("sync timeout", late)

    play(body)


def test_the_journal_lists_removed_group_offsets_up_to_a_limit() -> None:
    async def body(room: Room) -> None:
        for count in (0, MAX_LISTED, MAX_LISTED + 10):
            room.journal.offsets_removed(Group(GROUP, 0), "gone", [TopicPartition("t", n) for n in range(count)])
        found = await room.journaled()
        assert [(e.facts["count"], len(e.facts["partitions"]["t"])) for e in found] == [
            (MAX_LISTED, MAX_LISTED), (MAX_LISTED + 10, MAX_LISTED)
        ]  # fmt: skip

    play(body)


def test_the_journal_does_not_decode_large_group_assignments() -> None:
    async def body(room: Room) -> None:
        group = Group(GROUP, 0)
        group.protocol_type = "consumer"
        for name, count in (("small", 10), ("large", MAX_ASSIGNMENT_BYTES // 4), ("late", 1)):
            assignment = encoded_assignment([TopicPartition("t", n) for n in range(count)])
            member = Member(name, None, "c", "/h", 1, 1, "consumer", (("range", b""),), assignment)
            group.members[name] = member
        room.journal.assigned(group)
        [assigned] = await room.journaled()
        shown = {o["member"]: o["partitions"] for o in assigned.facts["owners"]}
        assert shown == {"small": {"t": list(range(10))}, "large": {}, "late": {}}

    play(body)


# ---- transactions


def test_the_journal_records_each_step_of_a_transaction_from_begin_to_end() -> None:
    async def body(room: transactions_room.Room) -> None:
        p0, p1 = transactions_room.P0, TopicPartition("orders", 1)
        producer = await room.ongoing(p0)
        assert not await room.add(producer, p1)
        assert not await room.add(producer, p1)  # it is there already: no decision
        assert not await room.end(producer)
        entries = await room.journaled()
        assert steps(entries) == ["producer initialized", "begun", "partitions added", "commit decided", "committed"]
        assert entries[2].facts["partitions"] == {"orders": [1]}
        assert entries[3].facts["count"] == 2
        assert entries[3].facts["why"] is None

    transactions_room.play(body)


def test_the_journal_names_the_reason_for_aborting_a_producers_open_transaction() -> None:
    async def fenced(room: transactions_room.Room) -> None:
        await room.ongoing()
        assert (await room.init()).error is ErrorCode.CONCURRENT_TRANSACTIONS
        [decided] = [e for e in await room.journaled() if e.facts["step"] == "abort decided"]
        assert "InitProducerId" in decided.facts["why"]

    async def timed_out(room: transactions_room.Room) -> None:
        await room.ongoing()
        await asyncio.sleep(100)
        [decided] = [e for e in await room.journaled() if e.facts["step"] == "abort decided"]
        assert "timed out" in decided.facts["why"]
        assert steps(await room.journaled())[-1] == "aborted"

    transactions_room.play(fenced)
    transactions_room.play(timed_out)


# ---- writing


class CountingSink(ListSink):
    writes = 0

    def write(self, lines: bytes) -> None:
        self.writes += 1
        super().write(lines)


def with_journal(sink: ListSink, body: Any) -> None:
    loop = SimulatedLoop()

    async def main() -> None:
        await body(DecisionJournal(Journal(sink, 1, SimulatedClock(loop))))

    loop.run(main())


def test_journal_lines_are_written_in_batches_after_a_delay_and_on_close() -> None:
    sink = CountingSink()

    async def body(journal: DecisionJournal) -> None:
        for number in range(3):
            journal.transaction(f"t{number}", "begun")
        assert sink.writes == 0
        await asyncio.sleep(FLUSH_DELAY_S)
        assert sink.writes == 1
        journal.transaction("last", "begun")
        journal.close()
        assert sink.writes == 2
        assert len(list(parse_lines(sink.content))) == 4

    with_journal(sink, body)


def test_journal_lines_above_the_rate_limit_are_counted_instead_of_written() -> None:
    sink = ListSink()

    async def body(journal: DecisionJournal) -> None:
        for _ in range(GROUPS.burst + 1_000):
            journal.partition("__consumer_offsets", 0, "loaded")
        journal.transaction("t", "timed out", is_routine=False)  # another budget
        await asyncio.sleep(10)
        journal.partition("__consumer_offsets", 0, "loaded")
        journal.close()

    with_journal(sink, body)
    entries = list(parse_lines(sink.content))
    assert [e.facts["lines"] for e in entries if e.kind == "suppressed"] == [1_000]
    assert len(entries) == GROUPS.burst + 3


@pytest.mark.parametrize("has_sink", [False, True])
def test_the_coordinators_journal_keeps_no_lines_without_an_output(has_sink: bool) -> None:
    sink = ListSink() if has_sink else None
    loop = SimulatedLoop()

    async def main() -> None:
        journal = DecisionJournal(Journal(sink, 1, SimulatedClock(loop)))
        journal.transaction("t", "begun")
        journal.close()

    loop.run(main())
    assert sink is None or sink.content
