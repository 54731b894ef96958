"""Small files are replaced as a whole, whoever else replaces them at the same time and whenever the power goes."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from klamm.runtime.disk import RealDisk
from klamm.runtime.randomness import Rng
from klamm.runtime.small_files import Replacement, SmallFile, replace_files
from klamm.sim.disk import Fault, SimulatedDisk


class MeetingDisk(RealDisk):
    """Two writers meet between the temporary file and its rename."""

    def __init__(self) -> None:
        self._meeting = threading.Barrier(2, timeout=10)

    def rename(self, source: str, target: str) -> None:
        self._meeting.wait()
        super().rename(source, target)


def test_two_atomic_writers_of_the_same_file_use_different_temporary_files(tmp_path: Path) -> None:
    disk = MeetingDisk()
    path = f"{tmp_path}/checkpoint"
    contents = [b"one" * 1000, b"two" * 1000]

    with ThreadPoolExecutor(
        2
    ) as pool:  # one SmallFile each: as two processes, or two parts that do not know each other
        writers = [pool.submit(replace_files, disk, [_changed(SmallFile(path), content)]) for content in contents]
        for writer in writers:
            writer.result()

    assert disk.read(path) in contents
    assert disk.list_directory(str(tmp_path)) == ["checkpoint"]


def test_an_atomic_file_write_uses_a_new_temporary_name_each_time(tmp_path: Path) -> None:
    disk = RealDisk()
    assert disk.temporary_name("x") != disk.temporary_name("x")
    (tmp_path / "checkpoint.tmp").mkdir()  # a name that all writers shared would fail here

    disk.write_atomically(f"{tmp_path}/checkpoint", b"content")

    assert disk.read(f"{tmp_path}/checkpoint") == b"content"


def test_a_failed_atomic_file_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    disk = RealDisk()
    (tmp_path / "checkpoint").mkdir()

    with pytest.raises(OSError):
        disk.write_atomically(f"{tmp_path}/checkpoint", b"content")

    assert disk.list_directory(str(tmp_path)) == ["checkpoint"]


def test_an_older_version_of_a_small_file_never_replaces_a_newer_version_on_disk(tmp_path: Path) -> None:
    disk = RealDisk()
    file = SmallFile(f"{tmp_path}/checkpoint")
    earlier, later = _changed(file, b"earlier"), _changed(file, b"later")

    replace_files(disk, [later])
    assert not file.is_changed
    replace_files(disk, [earlier])

    assert disk.read(file.path) == b"later"
    assert disk.list_directory(str(tmp_path)) == ["checkpoint"]


def test_a_small_file_counts_as_changed_until_its_newest_version_is_written(tmp_path: Path) -> None:
    file = SmallFile(f"{tmp_path}/checkpoint")
    earlier = _changed(file, b"earlier")
    file.next_version()

    replace_files(RealDisk(), [earlier])

    assert file.is_changed


@pytest.mark.parametrize("count", [1, 40])
def test_an_atomically_written_file_has_old_or_new_content_after_power_loss(count: int) -> None:
    for seed in range(40):
        disk = SimulatedDisk(Rng(seed))
        disk.make_directories("/data")
        disk.sync_directory("/")
        files = [SmallFile(f"/data/{number}") for number in range(count)]
        replace_files(disk, [_changed(file, b"old") for file in files])
        disk.lose_power()
        assert {disk.read(file.path) for file in files} == {b"old"}
        disk.fault = _failing_from(seed % 9)
        with contextlib.suppress(OSError):
            replace_files(disk, [_changed(file, b"new") for file in files])
        disk.fault = lambda call, path: None
        disk.lose_power()
        assert {disk.read(file.path) for file in files} <= {b"old", b"new"}


def _changed(file: SmallFile, content: bytes) -> Replacement:
    file.next_version()
    return file.replacement(content)


def _failing_from(number: int) -> Fault:
    calls = iter(range(1000))
    return lambda call, path: 5 if call in ("sync", "rename") and next(calls) >= number else None
