"""A Spark session with the settings that make Python sources fast."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from klamm.runtime.blocking import RealBlockingWorld
from klamm.runtime.java import java_home
from klamm.runtime.processes import python, set_environment_default

SETTINGS: Final = {
    # a task in Python costs 45 ms less per slot than over TCP, where Nagle meets the delayed ACK
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session(
    app_name: str = "klamm", *, cores: int | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a local Spark session with klamm's source; `cores` None means all cores. `settings` override the defaults.

    Where a session is already running it is returned, and only settings that may change at run time take effect. Raises
    NoJava.
    """
    set_environment_default("JAVA_HOME", java_home())
    # else Spark starts the first python3 on the path, without klamm
    set_environment_default("PYSPARK_PYTHON", python())
    processors = cores or RealBlockingWorld().processors()
    builder = SparkSession.builder.master(f"local[{processors}]").appName(app_name)
    defaults = SETTINGS | {"spark.sql.shuffle.partitions": str(processors)}
    for name, value in (defaults | dict(settings or {})).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
