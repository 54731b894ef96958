"""One Spark session for all tests that need one: it takes seconds to start."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import py4j
import pyspark
import pytest
from pyspark.sql import SparkSession

from klamm.spark import session

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto"
PACKAGES: Final = {"pyspark": Path(pyspark.__path__[0]), "py4j": Path(py4j.__path__[0])}
"""What Spark's Python workers import, where it is installed."""
WORKER_LOGS: Final = "spark.sql.pyspark.worker.logging.enabled"


@contextmanager
def running_spark(directory: Path) -> Iterator[SparkSession]:
    """Start Spark, with what it writes in this directory; processes started meanwhile use the same installation."""
    with pytest.MonkeyPatch.context() as variables:
        variables.setenv("SPARK_HOME", str(linked_home(directory / "home")))
        spark = session(
            "klamm tests",
            cores=2,
            settings={
                "spark.driver.memory": "1g",
                "spark.driver.extraJavaOptions": QUICK_START,
                # with it each streaming query starts Python workers of its own: three seconds of processor time
                WORKER_LOGS: "false",
                "spark.sql.ui.explainMode": "simple",  # of each plan, for a page that no test opens
                "spark.sql.adaptive.enabled": "false",
                "spark.sql.codegen.wholeStage": "false",
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
                "spark.sql.warehouse.dir": str(directory / "warehouse"),
                "spark.local.dir": str(directory / "local"),
            },
        )
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def worker_logs(spark: SparkSession) -> Iterator[None]:
    """Keep what the session's Python workers log, as a session of klamm does where a test does not say otherwise."""
    spark.conf.set(WORKER_LOGS, "true")
    try:
        yield
    finally:
        spark.conf.set(WORKER_LOGS, "false")


def linked_home(home: Path) -> Path:
    """The installed Spark, with directories in place of the archives that its Python workers import from.

    What Python imports from an archive it compiles in each process: half a second for each one that Spark starts.
    """
    home.mkdir()
    for entry in PACKAGES["pyspark"].iterdir():
        if entry.name != "python":
            (home / entry.name).symlink_to(entry)
    for archive in (PACKAGES["pyspark"] / "python" / "lib").glob("*.zip"):
        directory = home / "python" / "lib" / archive.name
        directory.mkdir(parents=True)
        name = archive.stem.partition("-")[0]
        (directory / name).symlink_to(PACKAGES[name])
    return home
