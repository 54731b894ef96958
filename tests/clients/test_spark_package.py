"""`klamm spark package`: executors that have no klamm run an unchanged pipeline with its archive."""

import os
import shlex
import subprocess
import sys
import venv
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pyspark
import pytest
from confluent_kafka import Producer
from tests.support.cluster import Cluster
from tests.support.pipeline_kills import dead_letters, rows_of_table
from tests.support.spark import QUICK_START

from klamm.runtime.disk import RealDisk
from klamm.runtime.java import java_home
from klamm.spark.package import UNPACKED, package_entries, submit_command, write_package

SPARK_HOME = Path(pyspark.__path__[0])
TIMEOUT_S = 240
EXECUTORS = 2
IMPORTS = "import klamm.spark.source, klamm.spark.sink, klamm.spark.stream, klamm.spark.avro, pyspark_klamm"
PIPELINE = """pipeline: orders
source:
  bootstrap: {bootstrap}
  topics: {topic}
  value: {{format: json, schema: "id BIGINT"}}
  options: {{minPartitions: 4}}
expect: {{positive: id > 0}}
sink: {{delta: orders.table}}
dead_letter: {{topic: {topic}.dead-letters}}
"""
# prints what the executors' Python says to `import klamm`
PROBE = """
import sys
from pyspark import SparkContext

def found(_):
    try:
        import klamm
    except ImportError as error:
        return [f"{sys.prefix}: {error}"]
    return [f"{sys.prefix}: klamm is in {klamm.__file__}"]

for line in SparkContext.getOrCreate().parallelize(range(2), 2).mapPartitions(found).collect():
    print("probe", line)
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with Python alone, as executors have it."""
    directory = tmp_path_factory.mktemp("bare")
    venv.create(directory, with_pip=False, symlinks=True)
    return directory


def bare_python(bare: Path, *paths: str) -> "subprocess.CompletedProcess[str]":
    """Import what workers of Spark import, with the bare interpreter, which finds modules on these paths."""
    command = [str(bare / "bin" / "python3"), "-c", IMPORTS]
    environment = {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_archive_for_executors_has_every_package_that_reading_and_writing_import(
    bare: Path, tmp_path: Path
) -> None:
    for entry in package_entries():
        (tmp_path / entry.name).symlink_to(entry.path)
    of_spark = [str(path) for path in (SPARK_HOME / "python" / "lib").glob("*.zip")]

    assert "No module named 'klamm'" in bare_python(bare, *of_spark).stderr
    done = bare_python(bare, *of_spark, str(tmp_path))

    assert done.returncode == 0, done.stderr


class Submitter:
    """Runs spark-submit with two executors that look for their interpreter in a bare environment."""

    def __init__(self, bare: Path, directory: Path) -> None:
        self._bare = bare
        # local-cluster works in the directory of Spark
        self._home = directory.parent / "spark"
        self._home.mkdir()
        for entry in SPARK_HOME.iterdir():
            (self._home / entry.name).symlink_to(entry)
        interpreter, *self._words = shlex.split(submit_command(str(directory)))
        name, _, self._python = interpreter.partition("=")
        assert name == "PYSPARK_PYTHON"
        self._script = self._words.index("pipeline") - 1

    def pipeline(self, file: Path) -> str:
        """Run a pipeline with the command that `klamm spark package` prints."""
        return self._run([*self._words[: self._script + 1], "pipeline", "run", str(file), "--available-now"])

    def probe(self, script: Path) -> set[str]:
        """What executors find without the archive."""
        path = ("--conf", f"spark.executorEnv.PYTHONPATH={UNPACKED}")
        lines = self._run([*self._words[:3], *path, str(script)]).splitlines()
        return {line.removeprefix("probe ") for line in lines if line.startswith("probe ")}

    def _run(self, words: list[str]) -> str:
        assert words[:3] == ["spark-submit", "--master", "MASTER"]
        # executors of local-cluster inherit the driver's variables
        of_executors = ("--conf", f"spark.executorEnv.PATH={self._bare}/bin:/usr/bin:/bin")
        done = subprocess.run(
            [
                str(self._home / "bin" / "spark-submit"), "--master", f"local-cluster[{EXECUTORS},1,1024]",
                "--conf", "spark.ui.enabled=false", *of_executors, *words[3:],
            ],
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "PYSPARK_PYTHON": self._python,
                "SPARK_HOME": str(self._home),
                "JAVA_HOME": java_home(),
                "JDK_JAVA_OPTIONS": QUICK_START,
            },
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
        return done.stdout


def produce(cluster: Cluster, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for n in numbers:
        producer.produce(topic, b'{"id": %d}' % (n % 10), partition=n % 2)
    assert producer.flush(30) == 0


@pytest.mark.timeout(4 * TIMEOUT_S)
def test_an_unchanged_pipeline_runs_on_executors_without_klamm_with_the_archive(
    bare: Path, cluster: Cluster, tmp_path: Path, client_rounds: int
) -> None:
    if client_rounds == 1:
        pytest.skip("it takes more than a minute: `make prove` runs it")
    topic = f"package-{uuid4().hex[:8]}"
    for created in (topic, f"{topic}.dead-letters"):
        cluster.create_topic(created, 2)
    file = tmp_path / "orders.yaml"
    file.write_text(PIPELINE.format(bootstrap=cluster.bootstrap, topic=topic))
    probe = tmp_path / "probe.py"
    probe.write_text(PROBE)
    write_package(RealDisk(), str(tmp_path / "package"))
    submitter = Submitter(bare, tmp_path / "package")

    without_archive = submitter.probe(probe)
    produce(cluster, topic, range(1_000))
    here = subprocess.run(
        [sys.executable, "-m", "klamm", "pipeline", "run", str(file), "--available-now"],
        env={**os.environ, "JDK_JAVA_OPTIONS": QUICK_START},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    produce(cluster, topic, range(1_000, 3_000))
    there = submitter.pipeline(file)

    assert without_archive == {f"{bare}: No module named 'klamm'"}
    assert "The pipeline orders has read 1,000 rows; 100 of them are dead letters." in here.stdout, here.stderr
    assert "The pipeline orders has read 2,000 rows; 200 of them are dead letters." in there
    all_rows = Counter((n % 2, n // 2) for n in range(3_000))
    refused = Counter((n % 2, n // 2) for n in range(0, 3_000, 10))
    assert rows_of_table(tmp_path / "orders.table") == all_rows - refused
    assert dead_letters(cluster.bootstrap, f"{topic}.dead-letters") == refused
