"""The manual has every option; tests/generated_pages.py checks the tables themselves."""

from pathlib import Path

from klamm.spark.kafka_options import NO_EFFECT, REFUSED
from klamm.spark.option_table import TABLE

MANUAL = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()


def test_every_spark_option_is_documented_exactly_once_in_the_manual() -> None:
    rows = [line.split("`")[1] for line in MANUAL.splitlines() if line.startswith("| `")]

    assert rows == [o.name for o in TABLE] + list(NO_EFFECT) + list(REFUSED)
