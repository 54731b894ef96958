"""`.txnindex` files: their entries are checked when they are read."""

import struct
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from klamm.log.errors import CorruptFile
from klamm.log.transactions import AbortedTransaction, TransactionIndex
from klamm.runtime.disk import RealDisk

ENTRY = struct.Struct(">hqqqq")  # version, producer id, first and last offset, last stable offset
BASE = 10
VALID = {
    "one": [(0, 7, 10, 12, 10)],
    "begun in an earlier segment": [(0, 7, 0, 12, 0)],
    "stable just after the marker": [(0, 7, 10, 12, 13)],
    "of two producers": [(0, 7, 10, 12, 10), (0, 8, 11, 13, 11)],
}
INVALID = {
    "unknown version": [(1, 7, 10, 12, 10)],
    "negative first offset": [(0, 7, -1, 12, 10)],
    "no record before the marker": [(0, 7, 12, 12, 10)],
    "marker before the segment": [(0, 7, 5, 9, 5)],
    "negative stable offset": [(0, 7, 10, 12, -1)],
    "stable beyond the marker": [(0, 7, 10, 12, 14)],
    "not in the order of markers": [(0, 7, 10, 12, 10), (0, 8, 10, 12, 10)],
}


def index_with(directory: Path, entries: list[tuple[int, ...]]) -> TransactionIndex:
    path = directory / "0.txnindex"
    path.write_bytes(b"".join(ENTRY.pack(*entry) for entry in entries))
    return TransactionIndex(RealDisk(), str(path), BASE)


@pytest.mark.parametrize("entries", VALID.values(), ids=VALID)
def test_valid_transaction_index_entries_are_read(tmp_path: Path, entries: list[tuple[int, ...]]) -> None:
    found: list[AbortedTransaction] = []

    index = index_with(tmp_path, entries)
    index.check()
    index.collect(0, 100, found)

    assert found == [AbortedTransaction(*entry[1:]) for entry in entries]


@pytest.mark.parametrize("entries", INVALID.values(), ids=INVALID)
def test_an_impossible_transaction_index_entry_raises_corrupt_file(
    tmp_path: Path, entries: list[tuple[int, ...]]
) -> None:
    with pytest.raises(CorruptFile, match="has an entry that is not valid"):
        index_with(tmp_path, entries).check()


def test_a_truncated_transaction_index_raises_corrupt_file(tmp_path: Path) -> None:
    index = index_with(tmp_path, [(0, 7, 10, 12, 10)])
    with open(index.path, "ab") as file:
        file.write(b"x")

    with pytest.raises(CorruptFile, match="35 bytes"):
        index.check()


def test_a_damaged_transaction_index_is_left_to_the_next_start(tmp_path: Path) -> None:
    index = index_with(tmp_path, [(1, 7, 10, 12, 10)])
    before = Path(index.path).read_bytes()

    with capture_logs() as lines:
        index.append(AbortedTransaction(7, 20, 22, 20))
        index.truncate_to(11)

    assert Path(index.path).read_bytes() == before
    assert [line["log_level"] for line in lines] == ["error", "error"]
    with pytest.raises(CorruptFile):
        index.collect(0, 100, list[AbortedTransaction]())
