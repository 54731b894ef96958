"""How many tasks Spark runs at once, as its driver knows it, for the processes that plan reads.

Spark plans the reads of Python sources in a process beside the driver, and tells it nothing of the cluster. The two
have one directory in common, that of `SparkContext.addFile`: the driver writes there what the planning process needs.
"""

import logging
import re
from posixpath import dirname, join
from typing import Final

from pyspark import SparkContext, SparkFiles
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from klamm.runtime.blocking import BlockingWorld
from klamm.runtime.disk import Disk

FILE: Final = "klamm-parallelism"
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,")
"""The number of executors on this machine, and the cores of each: all start after the driver."""
_LOG: Final = logging.getLogger("klamm.spark")


def store_parallelism(world: BlockingWorld, disk: Disk, spark: SparkSession) -> None:
    """Write how many tasks this Spark runs at once to where `stored_parallelism` looks for it, in the driver.

    Nothing where `spark` is a client of Spark Connect: it has no directory in common with the driver.
    """
    if is_remote():
        return
    try:
        disk.write_atomically(
            join(SparkFiles.getRootDirectory(), FILE), b"%d" % parallelism_of(world, spark.sparkContext)
        )
    except OSError as error:
        _LOG.warning("reads are cut into tasks by the processors of this machine, not of the cluster: %s", error)


def stored_parallelism(world: BlockingWorld, disk: Disk) -> int:
    """How many tasks the Spark runs at once that plans a read in this process.

    It is the number of processors of this machine, the driver's, where nobody stored it.
    """
    if SparkFiles._is_running_on_worker and SparkFiles._root_directory is not None:
        of_session = SparkFiles._root_directory
        for directory in (of_session, dirname(of_session)):  # Spark may put the session's id behind it
            try:
                return max(1, int(disk.read(join(directory, FILE))))
            except (OSError, ValueError):
                continue
    return world.processors()


def parallelism_of(world: BlockingWorld, context: SparkContext) -> int:
    """Spark's default parallelism; on a cluster at least what the executors will have that have not started yet."""
    settings, master = context.getConf(), str(context.master)
    known = context.defaultParallelism
    if master == "local" or master.startswith("local[") or settings.contains("spark.default.parallelism"):
        return known
    if on_this_machine := _LOCAL_CLUSTER.match(master):
        return int(on_this_machine[1]) * int(on_this_machine[2])
    executors = int(settings.get("spark.executor.instances", "0") or 0)
    cores = int(settings.get("spark.executor.cores", "1") or 1)
    return max(known, executors * cores, world.processors())
