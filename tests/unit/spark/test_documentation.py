"""The manual has every option; tests/generated_pages.py checks the tables themselves."""

from pathlib import Path

from klamm.spark.kafka_options import NO_EFFECT, REFUSED
from klamm.spark.option_table import TABLE
from klamm.spark.sink_kafka_options import NOT_FOR_WRITES, WRITES_REFUSE
from klamm.spark.sink_options import SINK_TABLE

MANUAL = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()


def test_every_spark_option_is_documented_exactly_once_in_the_manual() -> None:
    rows = [line.split("`")[1] for line in MANUAL.splitlines() if line.startswith("| `")]

    reads = [o.name for o in TABLE] + list(NO_EFFECT) + list(REFUSED)
    assert rows == reads + [o.name for o in SINK_TABLE] + list(NOT_FOR_WRITES) + list(WRITES_REFUSE)
