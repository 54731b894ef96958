"""The example project of Spark Declarative Pipelines, whose first flow reads a topic with klamm."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from confluent_kafka import Producer
from tests.support.cache import CACHE, made_once, run
from tests.support.cluster import Cluster
from tests.support.spark import QUICK_START

from klamm.runtime.java import java_home

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "declarative-pipelines"
SPARK_HOME = Path(pyspark.__path__[0])
# what the extra `pipelines` of PySpark adds
NEEDED = ("grpcio==1.76.0", "grpcio-status==1.76.0", "googleapis-common-protos==1.71.0")
TIMEOUT_S = 600


@pytest.fixture(scope="module")
def grpc_packages() -> Path:
    """The packages for Spark Connect, which pip fetches once; they are no part of klamm's own environment."""
    directory = CACHE / "spark-pipelines"
    with made_once(directory) as empty:
        if empty is not None:
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--target"]
            run("install what Spark Declarative Pipelines needs", [*command, str(empty), *NEEDED])
    return directory


class Project:
    """A copy of the example that reads a topic of its own."""

    def __init__(self, directory: Path, cluster: Cluster, topic: str, packages: Path) -> None:
        self._packages = packages
        self.directory = directory
        shutil.copytree(EXAMPLE, directory)
        self._replace("spark-pipeline.yml", {"file:///var/lib/flights/storage": f"file://{directory}/storage"})
        names = {"127.0.0.1:9092": cluster.bootstrap, '"subscribe", "flights"': f'"subscribe", "{topic}"'}
        self._replace("transformations/flights.py", names)

    def _replace(self, name: str, texts: dict[str, str]) -> None:
        path = self.directory / name
        content = path.read_text()
        for old, new in texts.items():
            assert old in content
            content = content.replace(old, new)
        path.write_text(content)

    def run(self) -> None:
        """Update all tables once, as docs/spark.md says."""
        command = [
            str(SPARK_HOME / "bin" / "spark-pipelines"), "run", "--remote", "local[2]",
            "--conf", "spark.sql.catalogImplementation=hive",
            "--conf", f"spark.sql.warehouse.dir=file://{self.directory}/warehouse",
        ]  # fmt: skip
        environment = {
            "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{self._packages}",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(SPARK_HOME),
            "JAVA_HOME": java_home(),
            "JDK_JAVA_OPTIONS": QUICK_START,
        }
        with open(self.directory / "run.log", "w") as log:
            done = subprocess.run(
                command,
                cwd=self.directory,
                env=os.environ | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S,
                check=False,
            )
        assert done.returncode == 0, (self.directory / "run.log").read_text()[-5000:]

    def rows(self, table: str) -> pa.Table:
        """The rows of a table; nothing was interrupted, so that each of its files counts."""
        return pa.concat_tables(pq.read_table(p) for p in (self.directory / "warehouse" / table).glob("*.parquet"))


def produce(cluster: Cluster, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for n in numbers:
        value = b'{"carrier": "%s", "flight": %d, "origin": "JFK", "dep_delay": %d}' % (b"UA" if n % 4 else b"AA", n, n)
        producer.produce(topic, value, partition=n % 2)
    assert producer.flush(30) == 0


@pytest.mark.timeout(2 * TIMEOUT_S + 120)
def test_the_example_of_spark_declarative_pipelines_has_each_record_once_after_two_runs(
    cluster: Cluster, tmp_path: Path, client_rounds: int, request: pytest.FixtureRequest
) -> None:
    if client_rounds == 1:
        pytest.skip("it takes more than half a minute: `make prove` runs it")
    topic = f"declared-{uuid4().hex[:8]}"
    cluster.create_topic(topic, 2)
    project = Project(tmp_path / "flights", cluster, topic, request.getfixturevalue("grpc_packages"))

    produce(cluster, topic, range(1_000))
    project.run()
    produce(cluster, topic, range(1_000, 1_500))
    project.run()

    flights = project.rows("flights")
    places = zip(flights["partition"].to_pylist(), flights["offset"].to_pylist(), strict=True)
    assert Counter(places) == Counter((n % 2, n // 2) for n in range(1_500))
    assert sorted(flights["flight"].to_pylist()) == list(range(1_500))
    delays = {row["carrier"]: (row["flights"], row["mean_delay"]) for row in project.rows("delays").to_pylist()}
    assert delays == {"AA": (375, 748.0), "UA": (1_125, 750.0)}
