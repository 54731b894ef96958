"""`session()` under spark-submit, and `register()` in a plain session whose first python3 has no klamm."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from tests.support.cluster import Cluster
from tests.support.spark import QUICK_START, linked_home

from klamm.runtime.java import java_home
from klamm.spark.ranges import MIN_TASK_OFFSETS

TIMEOUT_S = 180
SMALL = ("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.bindAddress=127.0.0.1")

SESSION = """
from klamm.spark import session
spark = session("submitted", cores=1)
for name in ("spark.master", "spark.app.name", "spark.sql.session.timeZone", "spark.sql.python.filterPushdown.enabled"):
    print(name, "is", spark.conf.get(name))
print("pinned", spark.sparkContext.getConf().get("spark.driver.host") == "127.0.0.1")
"""
PARALLEL = """
import sys
from klamm.spark import session
spark = session("parallel")
options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2], "startingOffsets": "earliest"}
print("batch", spark.read.format("klamm").options(**options).load().rdd.getNumPartitions())
rows = spark.readStream.format("klamm").options(**options).load()
counted = []
query = rows.writeStream.foreachBatch(lambda batch, _: counted.append(batch.rdd.getNumPartitions()))
query.option("checkpointLocation", sys.argv[3]).trigger(availableNow=True).start().awaitTermination()
print("stream", counted[0])
"""
REGISTER = """
from pyspark.sql import SparkSession
from klamm.spark import register
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
options = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "x", "kafka.default.api.timeout.ms": "300"}
def read():
    try:
        spark.read.format("klamm").options(**options).load().count()
    except Exception as error:
        return str(error)
print("before:", "DATA_SOURCE_NOT_FOUND" in read())
register(spark)
print("after:", "no connection to 127.0.0.1:9" in read())
"""


def run(command: list[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def clean_environment(directory: Path) -> dict[str, str]:
    """This process's variables without those that choose an interpreter, and with a Spark that starts soon."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("PYSPARK", "SPARK", "VIRTUAL_ENV"))}
    home = str(linked_home(directory / "spark"))
    return {**kept, "SPARK_HOME": home, "JAVA_HOME": java_home(), "JDK_JAVA_OPTIONS": QUICK_START}


def test_klamms_spark_session_keeps_master_and_settings_given_to_spark_submit(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SESSION)
    environment = clean_environment(tmp_path) | {"PYSPARK_PYTHON": sys.executable}
    chosen = ("--master", "local[3]", "--conf", "spark.sql.session.timeZone=Europe/Rome")

    submit = f"{environment['SPARK_HOME']}/bin/spark-submit"
    lines = run([submit, *chosen, *SMALL, str(script)], environment).splitlines()

    assert "spark.master is local[3]" in lines
    assert "spark.sql.session.timeZone is Europe/Rome" in lines
    assert "spark.sql.python.filterPushdown.enabled is true" in lines
    assert "pinned False" in lines


def test_reads_are_cut_into_tasks_by_the_parallelism_of_spark_instead_of_the_drivers_processors(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, records = f"parallel-{uuid4()}", 5 * 2 * MIN_TASK_OFFSETS
    cluster.create_topic(topic, 3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": records})
    for number in range(records):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(60) == 0
    script = tmp_path / "job.py"
    script.write_text(PARALLEL)
    environment = clean_environment(tmp_path) | {"PYSPARK_PYTHON": sys.executable}
    chosen = ("--master", "local[2]", "--conf", "spark.default.parallelism=5")

    submit = f"{environment['SPARK_HOME']}/bin/spark-submit"
    arguments = (str(script), cluster.bootstrap, topic, str(tmp_path / "checkpoint"))
    lines = run([submit, *chosen, *SMALL, *arguments], environment).splitlines()

    assert "batch 10" in lines
    assert "stream 10" in lines


def test_registering_the_spark_source_works_although_the_first_python3_in_path_lacks_klamm(tmp_path: Path) -> None:
    other = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")
    if other is None:
        pytest.skip("there is no python3 besides the one that runs the tests")
    script = tmp_path / "plain.py"
    script.write_text(REGISTER)
    # an interpreter that finds nothing beside its own library stands for one without klamm
    (tmp_path / "python3").write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {other} "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    environment = clean_environment(tmp_path) | {"PATH": f"{tmp_path}:/usr/bin:/bin"}

    lines = run([sys.executable, str(script)], environment).splitlines()

    assert lines[-2:] == ["before: True", "after: True"]
