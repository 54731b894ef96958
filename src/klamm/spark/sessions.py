"""A Spark session with the settings that make Python sources fast, and `klamm` in sessions that others made."""

import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from klamm.model.errors import KlammError
from klamm.runtime.blocking import RealBlockingWorld
from klamm.runtime.disk import RealDisk
from klamm.runtime.java import java_home
from klamm.runtime.processes import environment_variable, find_program, python, set_environment_default
from klamm.spark.parallelism import store_parallelism
from klamm.spark.source import KlammSource

FAST_SETTINGS: Final = {
    # a task in Python costs 45 ms less per slot than over TCP, where Nagle meets the delayed ACK
    "spark.python.unix.domain.socket.enabled": "true",
    # conditions on partition, offset and timestamp reach the source
    "spark.sql.python.filterPushdown.enabled": "true",
    # what workers log, passed-over losses among it, can be read in the driver: spark.tvf.python_worker_logs()
    "spark.sql.pyspark.worker.logging.enabled": "true",
    # with those logs each session has Python workers of its own, and without these two each cached DataFrame a session
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    "spark.sql.sources.bucketing.autoBucketedScan.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}
"""Of any session, unless its configuration says otherwise."""
LOCAL_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Hadoop's other way starts twenty processes (readlink, chmod) for the two files of each micro-batch, this one four
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Where nobody chose a master: all of Spark runs on this machine."""


class WorkersLackKlamm(KlammError):
    """The interpreter of Spark's Python workers cannot import klamm."""


def session(
    app_name: str = "klamm", *, cores: int | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with settings that suit klamm; `settings` come on top and win.

    Under spark-submit, or with PYSPARK_SUBMIT_ARGS or SPARK_REMOTE, the master and all settings chosen there are kept.
    Otherwise the session is local, with `cores` processors (None: all of the machine). Where a session is already
    running it is returned, and only settings that may change at run time take effect. Raises NoJava.
    """
    chosen = _chosen_settings()
    builder = SparkSession.builder.appName(app_name)
    defaults = dict(FAST_SETTINGS)
    if not _has_master(chosen):
        set_environment_default("JAVA_HOME", java_home())
        # else Spark starts the first python3 on the path, without klamm
        set_environment_default("PYSPARK_PYTHON", python())
        processors = cores or RealBlockingWorld().processors()
        builder = builder.master(f"local[{processors}]")
        defaults |= LOCAL_SETTINGS | {"spark.sql.shuffle.partitions": str(processors)}
    for name, value in ({n: v for n, v in defaults.items() if n not in chosen} | dict(settings or {})).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    store_parallelism(RealBlockingWorld(), RealDisk(), spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make `format("klamm")` known to a Spark session that was created elsewhere.

    It is only needed where Spark answers DATA_SOURCE_NOT_FOUND: Spark looks for sources with the first python3 on the
    path, unless PYSPARK_PYTHON says otherwise. A local session then uses the running interpreter for its workers.
    Raises WorkersLackKlamm.
    """
    context = spark.sparkContext
    worker_python = context.pythonExec
    if find_program(worker_python) != find_program(python()):
        if not str(context.master).startswith("local["):
            raise WorkersLackKlamm(
                f"the workers of {context.master} run {worker_python}, which may lack klamm. Set PYSPARK_PYTHON (or "
                "spark.pyspark.python) to an interpreter that has klamm on every worker, before the session starts."
            )
        context.pythonExec = python()
    spark.dataSource.register(KlammSource)
    store_parallelism(RealBlockingWorld(), RealDisk(), spark)


def _chosen_settings() -> Mapping[str, str]:
    """The settings that spark-submit or the environment chose for this process."""
    if environment_variable("PYSPARK_GATEWAY_PORT"):  # spark-submit started Java before this process
        SparkContext._ensure_initialized()  # connects to it; before that a SparkConf does not have its settings
        return dict(SparkConf().getAll())
    given = shlex.split(environment_variable("PYSPARK_SUBMIT_ARGS") or "")
    words = [part for word in given for part in _option_and_value(word)]
    chosen = {"spark.remote": remote} if (remote := environment_variable("SPARK_REMOTE")) else {}
    for option, value in pairwise(words):
        if option == "--master":
            chosen["spark.master"] = value
        if option in ("--conf", "-c") and "=" in value:
            name, _, setting = value.partition("=")
            chosen[name] = setting
    return chosen


def _option_and_value(word: str) -> Sequence[str]:
    """The option and the value in one word of spark-submit's arguments, as in `--master=yarn`; else the word."""
    option, _, value = word.partition("=")
    return (option, value) if option.startswith("--") and value else (word,)


def _has_master(chosen: Mapping[str, str]) -> bool:
    """Whether the settings name a Spark master."""
    return "spark.master" in chosen or "spark.remote" in chosen
