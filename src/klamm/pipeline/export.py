"""Exports what a pipeline reads: its records, decoded, as Parquet files for other programs."""

from collections.abc import Iterator
from contextlib import contextmanager
from posixpath import join
from typing import Final

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from klamm.model.errors import UsageError
from klamm.pipeline.errors import PipelineFailed, cause_of
from klamm.pipeline.spec import Spec
from klamm.runtime.disk import Disk
from klamm.runtime.small_files import create_directory
from klamm.spark.option_set import Reads
from klamm.spark.option_table import READ_OPTIONS
from klamm.spark.options import ReadOptions, read_options
from klamm.spark.parquet_export import ExportedFile, export_records

MANIFEST: Final = "manifest.json"
LOCK: Final = ".lock"
"""Readers of Parquet ignore files that begin with a dot."""
_STARTS: Final = frozenset(("startingoffsets", "startingoffsetsbytimestamp", "startingtimestamp"))
"""The options that say where the pipeline begins."""


class Manifest(msgspec.Struct, frozen=True):
    """What an export wrote; it is written last, so an export without it is not complete."""

    pipeline: str
    files: list[ExportedFile]

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.bytes for file in self.files)


def export_pipeline(spark: SparkSession, spec: Spec, disk: Disk, directory: str) -> Manifest:
    """Write all records of the pipeline's topics to Parquet files in a new directory, and a manifest.

    Raises UsageError for a directory that has files or is used by another export, PipelineFailed, and what planning a
    batch read raises.
    """
    options = export_options(spec)
    try:
        if disk.exists(directory) and not disk.is_directory(directory):
            raise UsageError(f"--to {directory}: it is not a directory. Name another one, or remove it.")
        create_directory(disk, directory)
        with _empty_and_locked(disk, directory):
            files = export_records(spark, options, directory)
            manifest = Manifest(spec.name, files)
            disk.write_atomically(join(directory, MANIFEST), msgspec.json.format(msgspec.json.encode(manifest)))
    except OSError as error:
        raise PipelineFailed(f"Cannot write to {directory}: {error.strerror}. Name another directory.") from error
    except (PySparkException, Py4JError) as error:
        raise PipelineFailed(
            f"The export of the pipeline {spec.name} failed: {cause_of(error)}. Remove {directory} and export again."
        ) from error
    return manifest


@contextmanager
def _empty_and_locked(disk: Disk, directory: str) -> Iterator[None]:
    """Lock an empty directory against other processes; the lock's file is removed once an export is complete.

    Raises UsageError for a directory that has files or is used by another export, OSError.
    """
    refused = f"--to {directory}: it exists, and is not an empty directory. Name another one, or remove it."
    if not set(disk.list_directory(directory)) <= {LOCK}:
        raise UsageError(refused)
    path = join(directory, LOCK)
    lock = disk.lock(path)
    if lock is None:
        raise UsageError(f"--to {directory}: another export writes to it. Name another directory.")
    try:
        if set(disk.list_directory(directory)) != {LOCK}:  # another export ended just now
            raise UsageError(refused)
        yield
        disk.remove(path)
    finally:
        lock.release()


def export_options(spec: Spec) -> ReadOptions:
    """The options of the batch read: from the first record to the last, whatever the pipeline has read.

    Records that cannot be decoded are exported with the reason. Raises BadOption.
    """
    of_batches = {option.name.lower() for option in READ_OPTIONS.table if Reads.BATCH in option.reads}
    kept = {n: v for n, v in spec.source_options.items() if n.lower() in of_batches - _STARTS}
    return read_options(kept | {"startingOffsets": "earliest", "onDecodeError": "report"}, Reads.BATCH)
