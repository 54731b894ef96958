"""The simulated disk: what survives process death and power loss, and injected errors."""

import errno

import pytest

from klamm.runtime.randomness import Rng
from klamm.sim.disk import SimulatedDisk
from klamm.sim.power_loss import PowerLoss


def disk(seed: int = 1) -> SimulatedDisk:
    made = SimulatedDisk(Rng(seed))
    made.make_directories("/data/a-0")
    for directory in ("/", "/data"):
        made.sync_directory(directory)
    return made


def written(made: SimulatedDisk, *, sync: bool) -> None:
    """Write a file to the disk, synced or not."""
    file = made.open("/data/a-0/log", create=True)
    file.pwrite([b"0123", b"4567"], 0)
    if sync:
        file.sync()
        made.sync_directory("/data/a-0")


def test_reads_from_the_simulated_disk_return_the_written_bytes() -> None:
    made = disk()
    written(made, sync=False)
    file = made.open_read("/data/a-0/log")
    file.pwrite([b"xx"], 2)
    file.truncate(6)

    assert (file.pread(100, 1), made.size("/data/a-0/log")) == (b"1xx45", 6)
    assert made.list_directory("/data") == ["a-0"]


def test_renaming_a_directory_of_the_simulated_disk_moves_its_files() -> None:
    made = disk()
    written(made, sync=True)
    made.rename("/data/a-0", "/data/a-0.deleted")

    assert made.read("/data/a-0.deleted/log") == b"01234567"
    assert not made.exists("/data/a-0")
    made.remove_tree("/data/a-0.deleted")
    assert made.list_directory("/data") == []


def test_power_loss_undoes_an_unsynced_directory_rename_completely_or_not_at_all() -> None:
    seen = set()
    for seed in range(20):
        made = disk(seed)
        written(made, sync=True)
        made.rename("/data/a-0", "/data/a-0.deleted")
        made.lose_power()
        [name] = made.list_directory("/data")
        assert made.read(f"/data/{name}/log") == b"01234567"
        seen.add(name)

    assert seen == {"a-0", "a-0.deleted"}


def test_a_synced_directory_rename_keeps_synced_files_after_power_loss() -> None:
    for seed in range(20):
        made = disk(seed)
        written(made, sync=True)
        late = made.open("/data/a-0/late", create=True)
        made.rename("/data/a-0", "/data/b-0")
        made.sync_directory("/data")
        late.sync()
        made.sync_directory("/data/b-0")
        made.lose_power()

        assert made.list_directory("/data") == ["b-0"]
        assert made.list_directory("/data/b-0") == ["late", "log"]


def test_power_loss_loses_synced_files_of_a_directory_whose_creation_was_not_synced() -> None:
    seen = set()
    for seed in range(20):
        made = disk(seed)
        made.make_directories("/data/b-0")
        made.open("/data/b-0/log", create=True).sync()
        made.sync_directory("/data/b-0")
        made.lose_power()
        assert made.exists("/data/b-0/log") is made.exists("/data/b-0")
        seen.add(made.exists("/data/b-0"))

    assert seen == {True, False}


def test_a_simulated_process_kill_keeps_files_and_releases_directory_locks() -> None:
    made = disk()
    written(made, sync=False)
    assert made.lock("/data/.lock") is not None
    assert made.lock("/data/.lock") is None

    made.process_died()

    assert made.read("/data/a-0/log") == b"01234567"
    assert made.lock("/data/.lock") is not None


def test_simulated_power_loss_keeps_synced_bytes_and_a_prefix_of_unsynced_bytes() -> None:
    seen = set()
    for seed in range(60):
        made = disk(seed)
        written(made, sync=True)
        made.open("/data/a-0/log").pwrite([b"abcdef"], 8)
        made.lose_power()
        seen.add(made.read("/data/a-0/log"))

    assert all(b"01234567abcdef".startswith(s) and len(s) >= 8 for s in seen)
    assert len(seen) > 4


def test_simulated_power_loss_may_remove_a_file_whose_directory_was_not_synced() -> None:
    outcomes = set()
    for seed in range(30):
        made = disk(seed)
        written(made, sync=False)
        made.lose_power()
        outcomes.add(made.exists("/data/a-0/log"))

    assert outcomes == {True, False}


def test_an_atomic_write_on_the_simulated_disk_leaves_old_or_new_content_after_power_loss() -> None:
    for seed in range(60):
        made = disk(seed)
        made.write_atomically("/data/checkpoint", b"old")
        made.fault = lambda call, path: errno.EIO if call == "sync" and path == "/data" else None
        with pytest.raises(OSError):
            made.write_atomically("/data/checkpoint", b"new")
        made.fault = lambda call, path: None
        made.lose_power()
        assert made.read("/data/checkpoint") in (b"old", b"new")


def test_writes_to_the_simulated_disk_fail_when_full_and_on_injected_errors() -> None:
    made = disk()
    made.capacity_bytes = 10
    written(made, sync=False)
    with pytest.raises(OSError, match="no space") as full:
        made.open("/data/a-0/log").pwrite([b"xyz"], 8)
    made.fault = lambda call, path: errno.EIO if call == "write" else None
    with pytest.raises(OSError) as broken:
        made.open("/data/a-0/log").pwrite([b"x"], 0)

    assert (full.value.errno, broken.value.errno) == (errno.ENOSPC, errno.EIO)
    assert made.read("/data/a-0/log") == b"01234567"


def test_files_synced_in_a_new_directory_survive_power_loss_after_an_older_one_of_its_name_was_renamed() -> None:
    """The two are different directories: a sync of the new one has no names of the old one, and the reverse."""
    for seed in range(20):
        made = SimulatedDisk(Rng(seed))
        made.make_directories("/logs/orders-0")
        made.open("/logs/orders-0/old", create=True).sync()
        made.rename("/logs/orders-0", "/logs/orders-0-delete")
        made.make_directories("/logs/orders-0")
        made.open("/logs/orders-0/new", create=True).sync()
        made.sync_directory("/logs/orders-0")
        made.sync_directory("/logs")
        made.sync_directory("/")

        made.lose_power(PowerLoss.ALL)

        assert made.list_directory("/logs/orders-0") == ["new"], seed
        assert set(made.list_directory("/logs/orders-0-delete")) <= {"old"}, seed
