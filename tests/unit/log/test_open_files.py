"""Not every log keeps its file open."""

import errno
from pathlib import Path

import pytest

from klamm.log.open_files import OpenFiles
from klamm.runtime.disk import File, RealDisk


class Scarce(RealDisk):
    """Refuses to open more than so many files."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open_now = 0
        self.opened: list[str] = []

    def open(self, path: str, *, create: bool = False) -> File:
        if self.open_now >= self.most:
            raise OSError(errno.EMFILE, "Too many open files")
        file = super().open(path, create=create)
        self.open_now += 1
        self.opened.append(path)
        close = file.close

        class Counted:
            def __getattr__(_self, name: str) -> object:  # noqa: N805
                return getattr(file, name)

            def close(_self) -> None:  # noqa: N805
                self.open_now -= 1
                close()

        return Counted()  # type: ignore[return-value]


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    for number in range(9):
        (tmp_path / f"{number}").write_bytes(b"%d" % number)
    return [f"{tmp_path}/{number}" for number in range(9)]


def test_the_least_recently_used_segment_file_is_closed_above_the_limit_of_open_files(paths: list[str]) -> None:
    disk = Scarce(4)
    files = OpenFiles(disk, most=3)
    for path in (*paths[:3], paths[0], paths[3]):
        assert files.get(path).pread(1, 0) == path[-1:].encode()

    assert (len(files), disk.open_now) == (3, 3)
    files.get(paths[0])
    assert disk.opened == paths[:4]  # the second file was closed, since the first was used after it
    first = files.get(paths[0])
    assert files.get(paths[0]) is first
    files.forget(paths[0])
    files.forget(paths[0])
    files.close()
    assert disk.open_now == 0


def test_cached_segment_files_are_closed_when_file_descriptors_run_out(paths: list[str]) -> None:
    disk = Scarce(5)
    files = OpenFiles(disk, most=100)

    for path in paths:
        assert files.get(path).pread(1, 0) == path[-1:].encode()

    assert len(files) <= 5


def test_errors_other_than_missing_file_descriptors_on_opening_a_segment_are_raised(paths: list[str]) -> None:
    files = OpenFiles(Scarce(0))
    with pytest.raises(OSError, match="Too many"):
        files.get(paths[0])
    with pytest.raises(FileNotFoundError):
        OpenFiles(RealDisk()).get(paths[0] + "-none")
