"""One Spark session, and the journals of simulated clusters."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.simulated_journals import SimulatedJournal, simulate
from tests.support.spark import running_spark

from klamm.insight.journal import distinct_lines


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with running_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def journals(request: pytest.FixtureRequest) -> Sequence[SimulatedJournal]:
    """The journals of the clusters of the first seeds."""
    return [simulate(seed) for seed in range(1, request.config.getoption("--journals") + 1)]


@pytest.fixture(scope="session")
def simulated_lines(
    spark: SparkSession, journals: Sequence[SimulatedJournal], tmp_path_factory: pytest.TempPathFactory
) -> DataFrame:
    """All their lines in one table."""
    path: Path = tmp_path_factory.mktemp("journals") / "all.txt"
    path.write_text("".join(f"{line}\n" for journal in journals for line in journal.lines))
    return distinct_lines(spark.read.text(str(path))).cache()
