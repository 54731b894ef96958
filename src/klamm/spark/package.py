"""The archive that brings klamm to Spark executors which have none: what `--archives` of spark-submit takes.

It has klamm and those packages that reading and writing import in Python workers, in the versions that run here; Spark
brings PySpark itself. Executors add the unpacked directory to PYTHONPATH.
"""

import sysconfig
import tarfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from posixpath import basename, join, normpath
from typing import Final, NamedTuple

from klamm.model.errors import KlammError
from klamm.runtime.disk import Disk
from klamm.runtime.java import package_folder

ARCHIVE: Final = "klamm-spark.tar.gz"
SCRIPT: Final = "klamm-submit.py"
UNPACKED: Final = "klamm-packages"
"""The name under which an executor unpacks the archive, below its working directory."""
_OWN: Final = ("klamm", "pyspark_klamm")
_NEEDED: Final = (
    "cramjam", "google-crc32c", "lz4", "msgspec", "numpy", "prometheus-client", "pyarrow", "structlog", "zstandard",
)  # fmt: skip
_IF_INSTALLED: Final = ("fastavro",)
"""Without it this machine plans no read of Avro either."""
_LEFT_OUT: Final = frozenset(("__pycache__", "tests"))
_COMPRESSION: Final = 3
"""Level of gzip: compiled code becomes little smaller with a higher one, but takes much longer."""
_SCRIPT_TEXT: Final = '''"""Runs klamm under spark-submit; arguments are those of the command `klamm`."""

from klamm.cli.main import main

main()
'''


class NotPackaged(KlammError):
    """The archive for executors cannot be made."""


class Entry(NamedTuple):
    """A file or directory of the archive, and where it is here."""

    name: str
    path: str


def package_entries() -> list[Entry]:
    """The top level of the archive, by name. Raises NotPackaged where a package is not installed."""
    return sorted({*_own_entries(), *_entries_of_distributions()})


def write_package(disk: Disk, directory: str) -> None:
    """Write archive and script into the directory, in place of earlier ones. Raises NotPackaged."""
    entries = package_entries()
    archive = join(directory, ARCHIVE)
    temporary = disk.temporary_name(archive)
    try:
        disk.make_directories(directory)
        with tarfile.open(temporary, "w:gz", compresslevel=_COMPRESSION) as packed:
            for entry in entries:
                packed.add(entry.path, entry.name, filter=_filter_member)
        disk.rename(temporary, archive)
        disk.write_atomically(join(directory, SCRIPT), _SCRIPT_TEXT.encode())
    except OSError as error:
        if disk.exists(temporary):
            disk.remove(temporary)
        raise NotPackaged(
            f"Cannot write {archive}: {error.strerror}. Name another directory with --directory."
        ) from error


def submit_command(directory: str) -> str:
    """Return a command line for spark-submit that runs klamm with the archive in this directory."""
    python = f"python{sysconfig.get_python_version()}"
    archive, script = (normpath(join(directory, name)) for name in (ARCHIVE, SCRIPT))
    return (
        f"PYSPARK_PYTHON={python} spark-submit --master MASTER --archives {archive}#{UNPACKED} "
        f"--conf spark.executorEnv.PYTHONPATH={UNPACKED} {script} pipeline run FILE"
    )


def requirement() -> str:
    """Return what executors must have: the archive has compiled code for one Python on one platform."""
    return f"Python {sysconfig.get_python_version()} on {sysconfig.get_platform()}"


def _own_entries() -> Iterator[Entry]:
    """The files of the package klamm, from the directory from which it is imported."""
    for name in _OWN:
        folder = package_folder(name)
        assert folder is not None, "both are part of klamm"
        yield Entry(name, folder)


def _entries_of_distributions() -> Iterator[Entry]:
    """The top-level files of the installed distributions that executors need. Raises NotPackaged."""
    for name in (*_NEEDED, *_IF_INSTALLED):
        try:
            found = distribution(name)
        except PackageNotFoundError:
            if name in _IF_INSTALLED:
                continue
            raise NotPackaged(
                f'The package {name} is not installed, and executors need it. Run: pip install "klamm[spark]"'
            ) from None
        tops = {file.parts[0] for file in found.files or ()} - {".."}  # commands are beside site-packages
        if name.replace("-", "_") not in tops:
            raise NotPackaged(
                f"The package {name} has no list of its files: it was installed from its sources, or by the package "
                f"manager of the system. Run: pip install --force-reinstall {name}"
            )
        for top in tops:
            yield Entry(top, str(found.locate_file(top)))


def _filter_member(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Filter the archive: the member without its owner, None for a file that executors do not need."""
    if basename(member.name) in _LEFT_OUT:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
