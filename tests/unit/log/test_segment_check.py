"""Which damage of a closed segment is found, and which bytes and offsets it is said to have."""

from collections.abc import Iterator

import pytest

from klamm.log.repair.checking import CheckedSegment, DamagedRange, Place, Progress, check_segment
from klamm.runtime.randomness import Rng
from klamm.sim.disk import SimulatedDisk
from klamm.wire.records import NewRecord, build_batch

BASE, RECORDS = 100, 3


class StoredSegment:
    """A segment of nine batches of three records, in two leader epochs, with an index entry for every third."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(Rng(1))
        self.disk.make_directories("/t")
        self.bounds = [0]
        content, index = b"", b""
        for number in range(9):
            base = BASE + number * RECORDS
            if number and number % 3 == 0:
                index += (base + RECORDS - 1 - BASE).to_bytes(4) + len(content).to_bytes(4)
            values = [NewRecord(b"%d" % number * 5) for _ in range(RECORDS)]
            content += build_batch(values, base_offset=base, leader_epoch=4 if number < 5 else 6)
            self.bounds.append(len(content))
        self.content = content
        self.put("/t/log", content)
        self.put("/t/index", index)

    def put(self, path: str, content: bytes) -> None:
        self.disk.open(path, create=True).pwrite([content], 0)

    def check(self, content: bytes, step: int = 1 << 20, latest_epoch: int = 6) -> tuple[DamagedRange, ...]:
        self.disk.open("/t/log").pwrite([content], 0)
        facts = CheckedSegment("/t/log", "/t/index", len(content), BASE, BASE + 9 * RECORDS, latest_epoch)
        progress = Progress(Place(0, BASE), None)
        found: tuple[DamagedRange, ...] = ()
        while progress.place.position < len(content):
            progress = check_segment(self.disk, facts, progress.place, progress.before, step)
            assert progress.errno is None
            found += progress.damaged
        return found

    def offset_at(self, number: int) -> int:
        return BASE + number * RECORDS


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.fixture(scope="module")
def stored() -> StoredSegment:
    return StoredSegment()


@pytest.mark.parametrize("step", [1, 100, 1 << 20])
def test_checking_an_intact_segment_finds_no_damage(stored: StoredSegment, step: int) -> None:
    assert stored.check(stored.content, step) == ()


def _bits(stored: StoredSegment) -> Iterator[tuple[int, int]]:
    """(batch, bit) of every bit of the segment."""
    for number, start in enumerate(stored.bounds[:-1]):
        for bit in range(start * 8, stored.bounds[number + 1] * 8):
            yield number, bit


def test_a_segment_check_finds_each_flipped_bit_in_a_range_of_whole_batches(stored: StoredSegment) -> None:
    undetected = []
    for number, bit in _bits(stored):
        found = stored.check(flipped(stored.content, bit), 200)
        if not found:
            undetected.append((number, bit // 8 - stored.bounds[number]))
            continue
        (damage,) = found
        start, end = stored.bounds.index(damage.position), stored.bounds.index(damage.end_position)
        assert start <= number < end <= start + 3, (number, bit, damage)
        assert (damage.first_offset, damage.end_offset) == (stored.offset_at(start), stored.offset_at(end))
    # a leader epoch that its neighbours could have as well: of the first batch, and where epoch 4 becomes 6
    assert undetected == [(0, 15), (4, 15), (4, 15), (5, 15)]


def test_a_segment_check_reports_neighbouring_damaged_batches_as_one_range(stored: StoredSegment) -> None:
    content = flipped(flipped(stored.content, (stored.bounds[3] - 1) * 8), (stored.bounds[4] - 1) * 8)

    (damage,) = stored.check(content)

    assert (damage.position, damage.end_position) == (stored.bounds[2], stored.bounds[4])


def test_a_segment_check_reports_damage_at_two_places_as_two_ranges(stored: StoredSegment) -> None:
    content = flipped(flipped(stored.content, (stored.bounds[2] - 1) * 8), (stored.bounds[7] - 1) * 8)

    assert [(d.first_offset, d.end_offset) for d in stored.check(content, 64)] == [
        (stored.offset_at(1), stored.offset_at(2)),
        (stored.offset_at(6), stored.offset_at(7)),
    ]


def test_a_segment_check_finds_the_next_batch_after_a_wrong_length_by_the_offset_index(stored: StoredSegment) -> None:
    content = bytearray(stored.content)
    content[stored.bounds[4] + 8 : stored.bounds[4] + 12] = (1 << 30).to_bytes(4)

    (damage,) = stored.check(bytes(content))

    assert (damage.position, damage.end_position) == (stored.bounds[4], stored.bounds[6])


def test_a_segment_check_reports_zero_bytes_at_the_segments_end_as_damage(stored: StoredSegment) -> None:
    content = stored.content[: stored.bounds[7]] + bytes(len(stored.content) - stored.bounds[7])

    (damage,) = stored.check(content)

    assert damage[:4] == (stored.bounds[7], len(content), stored.offset_at(7), BASE + 9 * RECORDS)


def test_a_segment_check_reports_a_leader_epoch_above_the_logs_latest_as_damage(stored: StoredSegment) -> None:
    assert stored.check(stored.content, latest_epoch=5)


def test_a_segment_check_reads_a_batch_larger_than_a_chunk_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = StoredSegment()
    monkeypatch.setattr("klamm.log.repair.batch_reader.CHUNK_BYTES", 64)

    assert stored.check(stored.content) == ()
    assert stored.check(flipped(stored.content, (stored.bounds[4] - 1) * 8))


def test_a_segment_check_of_a_missing_file_returns_the_errno(stored: StoredSegment) -> None:
    facts = CheckedSegment("/t/none", "/t/index", 10, BASE, BASE + 1, None)

    assert check_segment(stored.disk, facts, Place(0, BASE), None, 10).errno == 2
