"""The journal: lines with causes, on real files, rotated and bounded; and read back as stories."""

import errno
from pathlib import Path
from typing import Any

import pytest

from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.runtime.disk import RealDisk
from klamm.runtime.randomness import Rng
from klamm.sim.disk import SimulatedDisk
from klamm.telemetry.journal import FLUSH_BYTES, Journal, LeaderChange, by_topic
from klamm.telemetry.journal_files import JournalFiles, journal_files
from klamm.telemetry.journal_reader import (
    Entry,
    controller_absence_ms,
    controller_terms,
    describe_event,
    in_order,
    leader_changes,
    lines_about_partition,
    read_journals,
)

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000

    def now_ms(self) -> int:
        self.ms += 1
        return self.ms


def journal_in(directory: Path, node: int = 1, **limits: Any) -> Journal:
    return Journal(JournalFiles(RealDisk(), str(directory), node, **limits), node, Clock())


def entries(*directories: Path) -> list[Entry]:
    return list(read_journals(RealDisk(), map(str, directories)))


def test_every_journal_line_names_its_cause_and_lines_keep_the_order_of_writing(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    cause = journal.event("BrokerChange", broker=3)
    journal.decision(cause, "offline", A0, 2, [(1, "not live")], leader_from=1, leader_to=2)
    journal.write(cause, "states", by_topic([A0, A1]))
    journal.request(cause, 2, "LEADER_AND_ISR", {"a": [0]})
    journal.response(cause, 2, "LEADER_AND_ISR", error=0)
    journal.refused(cause, "election", "no eligible replica")
    journal.flush()

    read = entries(tmp_path)
    assert [e.kind for e in read] == ["event", "decision", "write", "request", "response", "refused"]
    assert [e.seq for e in read] == [1, 2, 3, 4, 5, 6]
    assert {e.cause for e in read} == {cause}
    assert read[1].facts["rejected"] == [[1, "not live"]]
    assert read[2].facts["partitions"] == {"a": [0, 1]}


def test_decisions_journalled_together_have_the_lines_of_single_ones(tmp_path: Path) -> None:
    three = (BrokerId(1), BrokerId(2), BrokerId(3))
    before, after = LeaderAndIsr(BrokerId(1), 4, three, 7, 5), LeaderAndIsr(BrokerId(2), 5, three[1:], 8, 6)
    nobody = LeaderAndIsr(BrokerId(-1), 6, three[1:], 8, 7)
    changes: list[LeaderChange] = [(A0, before, after, [(1, "not live")], True), (A1, None, nobody, (), False)]
    single, together = journal_in(tmp_path / "single"), journal_in(tmp_path / "together")

    for p, was, now, rejected, unclean in changes:
        single.leader_decision("1.1.1", "offline", p, was, now, rejected, unclean)
    single.line("1.1.1", "done")
    together.leader_decisions("1.1.1", "offline", changes)
    together.line("1.1.1", "done")
    for journal in (single, together):
        journal.flush()

    found, expected = entries(tmp_path / "together"), entries(tmp_path / "single")
    assert [(e.seq, e.kind, e.cause) for e in found] == [(e.seq, e.kind, e.cause) for e in expected]
    assert [e.facts for e in found] == [e.facts for e in expected]
    assert [e.seq for e in found] == [1, 2, 3]


def test_journal_lines_are_written_on_flush_or_when_the_buffer_is_full(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    journal.event("BrokerChange")
    assert not journal_files(RealDisk(), str(tmp_path))

    while not journal_files(RealDisk(), str(tmp_path)):
        journal.line("1", "filler", text="x" * 1_000)
    assert (tmp_path / "klamm-journal-1-00000001.jsonl").stat().st_size >= FLUSH_BYTES


def test_each_node_start_begins_a_new_journal_file_with_its_own_cause_numbers(tmp_path: Path) -> None:
    causes = []
    for _ in range(2):
        journal = journal_in(tmp_path)
        causes.append(journal.event("Startup"))
        journal.flush()

    assert causes == ["1.1.1", "1.2.1"]
    assert [number for _, number, _ in journal_files(RealDisk(), str(tmp_path))] == [1, 2]


def test_journal_files_are_rotated_and_only_the_newest_are_kept(tmp_path: Path) -> None:
    journal = journal_in(tmp_path, max_file_bytes=200, max_files=3)
    journal_in(tmp_path, node=2).flush()
    (tmp_path / "klamm-journal-2-00000009.jsonl").write_text("")
    (tmp_path / "notes.txt").write_text("not ours")
    for n in range(10):
        journal.event("Startup", n=n)
        journal.flush()

    assert [(node, number) for node, number, _ in journal_files(RealDisk(), str(tmp_path))] == [
        (1, 7),
        (1, 8),
        (1, 9),
        (1, 10),
        (2, 9),
    ]
    assert sum(path.stat().st_size for path in tmp_path.glob("klamm-journal-1-*")) <= 3 * 200
    assert [e.facts["n"] for e in entries(tmp_path)] == [6, 7, 8, 9]


def test_frequent_node_restarts_do_not_delete_older_journal_files(tmp_path: Path) -> None:
    for n in range(50):
        journal = journal_in(tmp_path, max_file_bytes=10_000, max_files=3)
        journal.event("Startup", n=n)
        journal.flush()

    assert [e.facts["n"] for e in entries(tmp_path)] == list(range(50))


def test_reading_a_journal_skips_an_incomplete_last_line(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    journal.event("Startup")
    journal.flush()
    path = tmp_path / "klamm-journal-1-00000001.jsonl"
    path.write_bytes(path.read_bytes() + b'{"ts_ms":17,"no')
    (tmp_path / "klamm-journal-3-00000001.jsonl").write_bytes(b'17\n{"ts_ms":1}\n')

    assert [e.facts["event"] for e in entries(tmp_path, tmp_path / "nowhere")] == ["Startup"]


class FullDisk:
    incarnation = 1

    def __init__(self) -> None:
        self.room = False
        self.written = b""

    def write(self, lines: bytes) -> None:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.written += lines


def test_the_number_of_journal_lines_lost_by_a_full_disk_is_written_later() -> None:
    sink = FullDisk()
    journal = Journal(sink, 1, Clock())
    for _ in range(3):
        journal.event("Startup")
        journal.flush()
        journal.flush()
    assert journal.lost_lines == 3

    sink.room = True
    journal.event("Startup")
    journal.flush()

    first, second = sink.written.splitlines()
    assert b'"kind":"lost","lines":3' in first
    assert b'"event"' in second


def test_a_failed_write_leaves_no_incomplete_journal_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = JournalFiles(RealDisk(), str(tmp_path), 1)
    files.write(b"first\n")
    assert files._file is not None
    file = files._file

    class Half:
        def pwrite(self, buffers: list[bytes], position: int) -> int:
            file.pwrite([buffers[0][:3]], position)
            raise OSError(errno.ENOSPC, "full")

        def truncate(self, size: int) -> None:
            file.truncate(size)

        def close(self) -> None:
            file.close()

    monkeypatch.setattr(files, "_file", Half())
    with pytest.raises(OSError, match="full"):
        files.write(b"second\n")
    monkeypatch.setattr(files, "_file", file)
    files.write(b"third\n")
    files.close()

    assert (tmp_path / "klamm-journal-1-00000001.jsonl").read_bytes() == b"first\nthird\n"


# ---- stories


def entry(epoch: int, seq: int, kind: str, cause: str = "c", ts_ms: int = 0, node: int = 1, **facts: object) -> Entry:
    return Entry(ts_ms, node, epoch, seq, cause, kind, facts)


def test_journal_lines_about_a_partition_include_their_causes_in_controller_epoch_order() -> None:
    told = [
        entry(2, 1, "event", "y", event="Startup"),
        entry(2, 2, "request", "y", partitions={"a": [0]}),
        entry(1, 9, "event", "x", event="BrokerChange"),
        entry(1, 10, "decision", "x", topic="a", partition=0, chosen=2),
        entry(1, 11, "decision", "x", topic="a", partition=1, chosen=2),
        entry(1, 12, "write", "x", partitions={"a": [1]}),
        entry(1, 3, "event", "w", event="TopicChange"),
    ]

    assert [(e.controller_epoch, e.seq) for e in lines_about_partition(told, A0)] == [(1, 9), (1, 10), (2, 1), (2, 2)]


def test_the_journalled_event_that_won_a_controller_election_gets_the_new_controller_epoch() -> None:
    told = [
        entry(1, 9, "decision", "x", topic="a", partition=0, chosen=2),
        entry(0, 1, "event", "y", event="Reelect"),
        entry(2, 2, "elected", "y"),
        entry(2, 3, "decision", "y", topic="a", partition=0, chosen=1),
    ]

    assert [(e.controller_epoch, e.kind) for e in lines_about_partition(told, A0)] == [
        (1, "decision"),
        (2, "event"),
        (2, "decision"),
    ]


def test_leader_changes_read_from_the_journal_have_old_leader_new_leader_and_cause() -> None:
    told = [
        entry(1, 0, "event", "x", event="BrokerChange", broker=None),
        entry(1, 1, "found", "x", dead=[1], new=[]),
        entry(1, 2, "decision", "x", ts_ms=7, topic="a", partition=0, leader_from=1, leader_to=2, leader_epoch=4,
              rejected=[[1, "not live"]], unclean=True),
        entry(1, 3, "decision", "x", topic="a", partition=1, leader_from=2, leader_to=2),
        entry(1, 4, "decision", "x", topic="a", partition=2, leader_from=None, leader_to=2),
        entry(1, 5, "decision", "gone", topic="a", partition=1, leader_from=2, leader_to=-1),
    ]  # fmt: skip

    first, second = leader_changes(told)

    assert first == (7, A0, 1, 2, 4, "BrokerChange: dead [1]", ((1, "not live"),), True)
    assert (second.partition, second.leader_to, second.why) == (A1, -1, "")


def test_a_journalled_event_is_described_by_its_kind_and_facts() -> None:
    event = entry(1, 1, "event", event="ControlledShutdown", broker=3, waited_ms=0.1, version=None)

    assert describe_event(event) == "ControlledShutdown: broker 3"


def test_the_description_of_a_broker_failure_event_says_how_the_process_ended() -> None:
    event = entry(1, 1, "event", event="BrokerChange", dead=[1], ended={"1": "its process ended (signal 9)"})

    assert describe_event(event) == "BrokerChange: dead [1], broker 1: its process ended (signal 9)"


def test_controller_terms_and_the_gaps_between_terms_are_read_from_the_journal() -> None:
    told = [
        entry(1, 1, "elected", ts_ms=100),
        entry(1, 2, "ready", ts_ms=130),
        entry(1, 3, "resigned", ts_ms=500),
        entry(2, 1, "elected", ts_ms=520, node=2),
        entry(2, 2, "ready", ts_ms=560, node=2),
        entry(2, 3, "event", ts_ms=900, node=2),
        entry(3, 1, "elected", ts_ms=1_800),
        entry(0, 1, "event", ts_ms=1),
    ]

    first, second, third = controller_terms(told)

    assert tuple(first) == (1, 1, 100, 130, 500, 500, None)
    assert (second.node, second.resigned_ms, second.last_line_ms) == (2, None, 900)
    assert controller_absence_ms(first, second) == 60
    assert controller_absence_ms(second, third) is None
    assert controller_absence_ms(second, third._replace(ready_ms=2_000)) == 1_100
    assert controller_absence_ms(second, third._replace(ready_ms=2_000), lost_at_ms=1_500) == 500


def test_a_controller_that_hears_of_its_successor_at_once_was_there_until_the_election() -> None:
    before, after = controller_terms(
        [
            entry(1, 1, "elected", ts_ms=100),
            entry(1, 2, "ready", ts_ms=130),
            entry(2, 1, "elected", ts_ms=90_000, node=2),
            entry(1, 3, "resigned", ts_ms=90_010),
            entry(2, 2, "ready", ts_ms=90_030, node=2),
        ]
    )

    assert controller_absence_ms(before, after, lost_at_ms=130) == 30
    assert controller_absence_ms(before._replace(resigned_ms=95_000), after, lost_at_ms=89_000) == 1_030


def test_journal_lines_of_nodes_that_are_not_controller_are_ordered_by_time() -> None:
    told = [entry(0, 1, "event", ts_ms=9), entry(0, 5, "event", ts_ms=3)]

    assert [e.ts_ms for e in in_order(told)] == [3, 9]


def test_a_reserved_number_of_a_journal_file_is_not_reused_after_a_power_loss() -> None:
    """Its number is part of every cause, and may be known to others already."""
    for seed in range(10):
        disk = SimulatedDisk(Rng(seed))
        disk.make_directories("/logs")
        disk.sync_directory("/")
        JournalFiles(disk, "/logs", 1).reserve_incarnation()
        disk.lose_power()

        assert JournalFiles(disk, "/logs", 1).incarnation == 2


def test_the_journal_writes_its_first_file_although_fsync_fails() -> None:
    disk = SimulatedDisk(Rng(1))
    disk.make_directories("/logs")
    journal = JournalFiles(disk, "/logs", 1)
    disk.fault = lambda call, path: errno.EIO if call == "sync" else None

    journal.reserve_incarnation()
    journal.write(b"line\n")

    assert disk.read("/logs/klamm-journal-1-00000001.jsonl") == b"line\n"


def test_a_journal_continues_in_another_log_directory_after_its_own_failed(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    second.mkdir()

    def files() -> JournalFiles:
        return JournalFiles(RealDisk(), str(first), 1, others=[str(second)])

    sink = files()
    journal = Journal(sink, 1, Clock())
    for failed in (second, None, first):  # another's failure is none of ours
        if failed is not None:
            sink.move_from(str(failed), str(second))
        journal.event("Startup")
        journal.flush()

    assert [e.seq for e in entries(first)] == [1, 2]
    assert [(e.seq, e.cause) for e in entries(second)] == [(3, "1.1.3")]
    assert files().incarnation == 3


def test_a_refusal_repeated_by_retries_is_journalled_once(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)

    def event(repeats: str, *refused: str) -> None:
        cause = journal.event("Resume")
        if repeats:
            journal.begin_retry(repeats)
        for why in refused:
            journal.refused(cause, "move", why)
        journal.end_event(is_retried=bool(refused))

    event("", "an ACL")
    event("Resume()", "an ACL")
    event("Resume()", "a quota")
    event("", "a quota")
    event("Resume()", "a quota", "an ACL")
    event("Resume()")
    event("Resume()", "an ACL")
    journal.flush()

    told = [e.facts["why"] for e in entries(tmp_path) if e.kind == "refused"]
    assert told == ["an ACL", "a quota", "a quota", "an ACL", "an ACL"]
