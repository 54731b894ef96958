"""The Spark session of a command: Spark logs nothing, and klamm prints what failed."""

import logging
from typing import Final

from pyspark.sql import SparkSession

from klamm.runtime.standard_streams import stderr_of_children_held
from klamm.spark.sessions import session

_PYSPARK_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""They write errors of SQL as JSON with stacks to stderr."""


def quiet_session(app_name: str, *, is_verbose: bool = False) -> SparkSession:
    """Return `klamm.spark.session(app_name)`; unless verbose, it logs nothing. Raises NoJava."""
    if is_verbose:
        return session(app_name)
    with stderr_of_children_held():  # Java warns before it can be told not to
        spark = session(app_name)
        spark.sparkContext.setLogLevel("OFF")
    for name in _PYSPARK_LOGGERS:
        logging.getLogger(name).disabled = True
    return spark
