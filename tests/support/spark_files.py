"""Test files that share a Spark session: one worker of pytest-xdist runs those of a group, and starts a JVM once."""

from typing import Final

_WITH_BROKERS: Final = (
    "pipeline_rows", "pipelines", "spark_log_dirs", "spark_sink", "spark_sink_commit", "spark_source", "spark_stream",
)  # fmt: skip
_WITH_JOURNALS: Final = ("layout", "plan_history", "simulated_clusters", "store", "tables")
ONE_SPARK_SESSION: Final = {
    **{f"tests/clients/test_{name}.py": "Spark and brokers" for name in _WITH_BROKERS},
    **{f"tests/contracts/insight/test_{name}.py": "Spark and journals" for name in _WITH_JOURNALS},
}
"""The group of each file."""
