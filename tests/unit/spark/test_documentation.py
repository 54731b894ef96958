"""The manual's tables are the code's."""

from pathlib import Path

from klamm.spark.options import REFUSED, TABLE

MANUAL = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()


def names_in_table(heading: str) -> list[str]:
    section = MANUAL.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return [line.split("`")[1] for line in rows]


def test_every_spark_option_is_documented_with_its_default() -> None:
    assert names_in_table("Options") == [option.name for option in TABLE]
    for option in TABLE:
        row = next(line for line in MANUAL.splitlines() if line.startswith(f"| `{option.name}` |"))
        assert row.split("|")[2].strip().strip("`") == (option.default or "")


def test_every_refused_spark_option_is_documented() -> None:
    assert names_in_table("Rejected options") == list(REFUSED)
