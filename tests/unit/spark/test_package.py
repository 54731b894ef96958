"""The archive for executors: what is in it, and what is said where it cannot be made."""

import shlex
import tarfile
from importlib.metadata import PackageNotFoundError, PackagePath, distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.runtime.disk import RealDisk
from klamm.spark import package
from klamm.spark.package import ARCHIVE, SCRIPT, Entry, NotPackaged, package_entries, submit_command, write_package


@pytest.fixture
def entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `ours` with tests and cached bytecode."""
    for name in ("ours/__init__.py", "ours/part/code.py", "ours/tests/test_code.py", "ours/__pycache__/x.pyc"):
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    monkeypatch.setattr(package, "package_entries", lambda: [Entry("ours", str(tmp_path / "site" / "ours"))])
    return tmp_path / "out"


def test_the_archive_for_executors_has_packages_without_tests_and_bytecode(entries: Path) -> None:
    write_package(RealDisk(), str(entries))

    with tarfile.open(entries / ARCHIVE) as packed:
        files = [member for member in packed if member.isfile()]
    assert [m.name for m in files] == ["ours/__init__.py", "ours/part/code.py"]
    assert {(m.uid, m.gid, m.uname, m.gname) for m in files} == {(0, 0, "", "")}
    assert sorted(path.name for path in entries.iterdir()) == [ARCHIVE, SCRIPT]


def test_a_package_that_cannot_be_written_leaves_no_temporary_file(entries: Path) -> None:
    entries.mkdir()
    (entries / ARCHIVE).mkdir()

    with pytest.raises(NotPackaged, match=r"Cannot write .*klamm-spark.tar.gz: .*directory. Name another directory"):
        write_package(RealDisk(), str(entries))

    assert [path.name for path in entries.iterdir()] == [ARCHIVE]


def test_the_package_for_executors_names_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = distribution

    def without_lz4(name: str) -> Any:
        if name == "lz4":
            raise PackageNotFoundError(name)
        return found(name)

    monkeypatch.setattr(package, "distribution", without_lz4)

    with pytest.raises(NotPackaged, match=r'lz4 is not installed, and executors need it. Run: pip install "klamm'):
        package_entries()


def test_fastavro_is_packaged_only_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = distribution
    with_it = {entry.name for entry in package_entries()}

    def without_fastavro(name: str) -> Any:
        if name == "fastavro":
            raise PackageNotFoundError(name)
        return found(name)

    monkeypatch.setattr(package, "distribution", without_fastavro)

    assert {name.partition("-")[0] for name in with_it - {e.name for e in package_entries()}} == {"fastavro"}
    assert {"klamm", "pyspark_klamm", "numpy", "pyarrow"} <= with_it
    assert not {"..", "pyspark", "klamm-0.1.0.dist-info"} & with_it


def test_the_printed_command_gives_executors_the_unpacked_directory() -> None:
    words = shlex.split(submit_command("./out"))

    archive, _, unpacked = words[words.index("--archives") + 1].partition("#")
    assert archive == f"out/{ARCHIVE}"
    assert words[words.index("--conf") + 1] == f"spark.executorEnv.PYTHONPATH={unpacked}"
    assert words[-4:] == [f"out/{SCRIPT}", "pipeline", "run", "FILE"]


@pytest.mark.parametrize("files", [None, ["__editable__.lz4.pth", "lz4-4.dist-info/RECORD"]], ids=["none", "sources"])
def test_a_package_whose_files_are_not_listed_is_not_left_out_of_the_archive(
    monkeypatch: pytest.MonkeyPatch, files: list[str] | None
) -> None:
    found = distribution
    listed = None if files is None else [PackagePath(file) for file in files]
    unlisted = SimpleNamespace(files=listed, locate_file=lambda top: top)
    monkeypatch.setattr(package, "distribution", lambda name: unlisted if name == "lz4" else found(name))

    with pytest.raises(NotPackaged, match=r"lz4 has no list of its files: .* pip install --force-reinstall lz4"):
        package_entries()
