"""Following a journal's files: whole lines, over rotations and restarts, and told what rotated away."""

from pathlib import Path
from typing import Any

from klamm.runtime.disk import RealDisk
from klamm.telemetry.journal_files import JournalFiles
from klamm.telemetry.journal_tail import Position, Tailed, read_next_lines

MANY = 1 << 20


def on(directory: Path, position: Position, most: int = MANY) -> Tailed:
    return read_next_lines(RealDisk(), str(directory), 1, position, most)


def files(directory: Path, **limits: Any) -> JournalFiles:
    return JournalFiles(RealDisk(), str(directory), 1, **limits)


def test_following_the_journal_returns_each_complete_line_once(tmp_path: Path) -> None:
    sink = files(tmp_path)
    sink.write(b"a\nb\nc")
    lines, position, _ = on(tmp_path, Position())
    assert lines == [b"a", b"b"]
    assert on(tmp_path, position).lines == []

    sink.write(b"c\nd\n")
    assert on(tmp_path, position).lines == [b"cc", b"d"]


def test_following_the_journal_reads_limited_bytes_but_returns_a_longer_line_completely(tmp_path: Path) -> None:
    files(tmp_path).write(b"aa\nbb\n" + b"x" * 100 + b"\ncc\n")
    told, position = [], Position()
    while lines := (found := on(tmp_path, position, 7)).lines:
        told.append(lines)
        position = found.position

    assert told[0] == [b"aa", b"bb"]
    assert [line for lines in told for line in lines] == [b"aa", b"bb", b"x" * 100, b"cc"]


def test_following_the_journal_skips_an_incomplete_last_line_of_a_file(tmp_path: Path) -> None:
    files(tmp_path).write(b"a\nhalf")
    files(tmp_path).write(b"b\n")

    lines, position, _ = on(tmp_path, Position())
    assert (lines, position.number) == ([b"a"], 1)
    assert on(tmp_path, position) == ([b"b"], Position(2, 2), 0)


def test_journal_files_deleted_by_rotation_before_they_were_read_are_counted_once(tmp_path: Path) -> None:
    sink = files(tmp_path, max_file_bytes=2, max_files=2)
    for letter in b"abcde":
        sink.write(bytes([letter]) + b"\n")

    lines, position, lost = on(tmp_path, Position(1, 2))
    assert (lines, lost) == ([b"d"], 3)
    assert on(tmp_path, position) == ([b"e"], Position(5, 2), 0)


def test_following_the_journal_with_a_malformed_saved_position_starts_at_the_first_line() -> None:
    assert Position.decode(Position(3, 141).encode()) == Position(3, 141)
    assert Position.decode(b"3") == Position.decode(b"x y") == Position()


def test_following_the_journal_of_a_missing_directory_returns_no_lines(tmp_path: Path) -> None:
    assert on(tmp_path / "none", Position()) == ([], Position(), 0)
