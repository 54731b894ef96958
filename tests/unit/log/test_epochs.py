"""The leader epoch cache against a model that keeps, for every offset, the epoch it was written in."""

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.log.support import SEGMENT_BYTES, Partition, batch

from klamm.log.epochs import EpochEnd, EpochEntry, LeaderEpochs, parse_epochs
from klamm.log.errors import CorruptFile
from klamm.log.loader import CheckpointedState


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochEntry(*entry) for entry in entries])


END = 100
ENDS = {
    "undefined": (-1, (-1, -1)),
    "latest": (7, (7, END)),
    "higher than all": (8, (-1, -1)),
    "lower than the first": (1, (1, 10)),
    "known": (4, (4, 50)),
    "between two": (6, (4, 50)),
    "just below a known one": (3, (2, 20)),
}


@pytest.mark.parametrize(("asked", "expected"), ENDS.values(), ids=ENDS)
def test_the_epoch_cache_returns_the_end_offset_of_the_largest_epoch_not_above_the_requested(
    asked: int, expected: tuple[int, int]
) -> None:
    assert epochs((2, 10), (4, 20), (7, 50)).end_offset_for(asked, END) == EpochEnd(*expected)


def test_an_empty_leader_epoch_cache_returns_no_epoch_and_no_end_offset() -> None:
    assert epochs().end_offset_for(0, END) == EpochEnd(-1, -1)
    assert (epochs().latest_epoch, epochs().earliest, epochs().epoch_for(3)) == (None,) * 3


ASSIGNMENTS = {
    "new epoch": ((9, 60), [(2, 10), (4, 20), (7, 50), (9, 60)]),
    "the latest again, later": ((7, 70), [(2, 10), (4, 20), (7, 50)]),
    "the latest, earlier": ((7, 40), [(2, 10), (4, 20), (7, 40)]),
    "an older epoch": ((3, 60), [(2, 10), (3, 60)]),
    "a start below the latest": ((9, 20), [(2, 10), (9, 20)]),
    "epoch 0 below all": ((0, 5), [(0, 5)]),
}


@pytest.mark.parametrize(("given", "expected"), ASSIGNMENTS.values(), ids=ASSIGNMENTS)
def test_assigning_a_leader_epoch_replaces_contradictory_cache_entries(
    given: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    cache = epochs((2, 10), (4, 20), (7, 50))

    cache.assign(*given)

    assert list(cache.entries) == expected


STARTS = {
    "before all": (5, [(2, 10), (4, 20)]),
    "at the first": (10, [(2, 10), (4, 20)]),
    "inside the first": (15, [(2, 15), (4, 20)]),
    "at the second": (20, [(4, 20)]),
    "inside the last": (30, [(4, 30)]),
}


@pytest.mark.parametrize(("start", "expected"), STARTS.values(), ids=STARTS)
def test_truncating_the_leader_epoch_cache_from_its_start_keeps_the_new_log_starts_epoch(
    start: int, expected: list[tuple[int, int]]
) -> None:
    cache = epochs((2, 10), (4, 20))

    cache.truncate_from_start(start)

    assert list(cache.entries) == expected


def test_the_leader_epoch_cache_calls_its_listener_only_when_epochs_change() -> None:
    told: list[int] = []
    cache = LeaderEpochs([], lambda: told.append(1))

    cache.assign(1, 5)
    cache.clear()
    silent = len(told)
    cache.clear()
    cache.truncate_from_end(3)
    cache.truncate_from_start(3)
    cache.assign(2, 7)
    cache.truncate_from_start(7)  # it starts there already

    assert (silent, len(told)) == (2, 3)


def test_leader_epochs_are_stored_in_kafkas_checkpoint_format() -> None:
    cache = epochs((0, 0), (3, 17))

    assert cache.text() == b"0\n2\n0 0\n3 17\n"
    assert parse_epochs(cache.text(), "x") == list(cache.entries)


@pytest.mark.parametrize(
    "content", [b"", b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0 0 0\n", b"0\n1\na b\n", b"0\nx\n", b"\xff\n0"]
)
def test_a_malformed_leader_epoch_checkpoint_raises_corrupt_file(content: bytes) -> None:
    with pytest.raises(CorruptFile, match="some-path"):
        parse_epochs(content, "some-path")


def test_a_leader_epoch_without_records_is_kept_in_the_checkpoint(orders: Partition) -> None:
    log = orders.open()
    log.append_as_leader(batch("a"), 3)
    log.epochs.assign(5, log.end_offset)

    assert log.epochs.end_offset_for(3, log.end_offset) == EpochEnd(3, 1)
    assert log.epochs.end_offset_for(5, log.end_offset) == EpochEnd(5, 1)
    log.close()
    assert (Path(log.directory) / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n3 0\n5 1\n"


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("log_start", [0, 3, 9])
def test_epochs_before_the_first_entry_are_read_from_the_batches_where_the_log_start_went_back(
    orders: Partition, is_clean: bool, log_start: int
) -> None:
    """DeleteRecords removed the entries, but a kill restored the log start of the last checkpoint."""
    log = orders.open(segment_bytes=SEGMENT_BYTES)
    for offset in range(24):
        log.append_as_leader(batch(f"value {offset}"), offset // 7)
    log.update_high_watermark(24)
    log.advance_start_offset(16)
    assert log.epochs.entries == ((2, 16), (3, 21))
    Path(log.directory, "leader-epoch-checkpoint").write_bytes(log.epochs.text())

    back = orders.open(CheckpointedState(is_clean, 24, log_start=log_start), segment_bytes=SEGMENT_BYTES)

    expected = ((0, log_start), (1, 7), (2, 14), (3, 21)) if log_start < 7 else ((1, log_start), (2, 14), (3, 21))
    assert back.epochs.entries == expected
    assert back.has_changed_small_files


def test_batches_are_not_read_for_epochs_where_the_first_has_none(orders: Partition) -> None:
    """A log that is older than leader epochs may have many such segments."""
    log = orders.open()
    for epoch in (-1, 1, 2):
        log.append_as_leader(batch("a"), epoch)
    Path(log.directory, "leader-epoch-checkpoint").write_bytes(b"0\n1\n2 2\n")

    back = orders.open(CheckpointedState(True, 3))

    assert back.epochs.entries == ((2, 2),)


class EpochMachine(RuleBasedStateMachine):
    """A log whose every record remembers its epoch; the cache must answer from it alone."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = LeaderEpochs()
        self.start = 0
        self.records: list[int] = []  # the epoch of each record from `start` on
        self.epoch = -1

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    @rule(skip=st.integers(1, 3), count=st.integers(1, 4))
    def lead(self, skip: int, count: int) -> None:
        """Begin a later leader epoch and add records."""
        self.epoch += skip
        self.cache.assign(self.epoch, self.end)
        self.records += [self.epoch] * count

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        if self.records:
            self.cache.assign(self.records[-1], self.end)
            self.records += [self.records[-1]] * count

    @rule(share=st.floats(0, 1))
    def cut_end(self, share: float) -> None:
        """Truncate the end of the log."""
        kept = int(len(self.records) * share)
        self.cache.truncate_from_end(self.start + kept)
        del self.records[kept:]

    @rule(share=st.floats(0, 1))
    def cut_start(self, share: float) -> None:
        """Advance the log start."""
        gone = int(len(self.records) * share)
        if gone < len(self.records):
            self.start += gone
            del self.records[:gone]
            self.cache.truncate_from_start(self.start)

    @invariant()
    def every_record_has_its_epoch(self) -> None:
        assert [self.cache.epoch_for(self.start + i) for i in range(len(self.records))] == self.records

    @invariant()
    def entries_rise(self) -> None:
        entries = self.cache.entries
        assert list(entries) == sorted(set(entries))
        assert len({e.epoch for e in entries}) == len({e.start_offset for e in entries}) == len(entries)

    @invariant()
    def ends_are_where_newer_records_begin(self) -> None:
        if not self.records:
            return
        for epoch in range(min(self.records), max(self.records) + 1):
            known = max(e for e in self.records if e <= epoch)
            newer = [self.start + i for i, e in enumerate(self.records) if e > epoch]
            expected = EpochEnd(known, newer[0] if newer else self.end)
            assert self.cache.end_offset_for(epoch, self.end) == expected


TestEpochMachine = EpochMachine.TestCase
TestEpochMachine.settings = settings(max_examples=60, stateful_step_count=25)
