"""One Spark session for all tests that need one: it takes seconds to start."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from klamm.spark import session

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


@contextmanager
def running_spark(directory: Path) -> Iterator[SparkSession]:
    spark = session(
        "klamm tests",
        cores=2,
        settings={
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": QUICK_START,
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
