"""Secrets of a pipeline are in no plan, log, error, event log or checkpoint, also where Spark logs all it can."""

import base64
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import fastavro
import pytest
from confluent_kafka import Producer
from tests.support.cluster import Cluster
from tests.support.schema_registry import schema_registry
from tests.support.spark import QUICK_START

from klamm.runtime.java import java_home

TIMEOUT_S = 280
CANARY = "canary-5f2d"
RIGHT, WRONG = f"reader:{CANARY}", f"{CANARY}:wrong"
LEAKS = [CANARY.encode(), *(base64.b64encode(login.encode()) for login in (RIGHT, WRONG))]
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
PIPELINE = """pipeline: orders
source:
  bootstrap: {bootstrap}
  topics: {topic}
  value: {{format: avro, schema_file: order.avsc, registry: '{registry}', registry_auth: '{auth}'}}
sink: {{parquet: table}}
"""
# to a file: Spark filters what a driver's console shows
LOG4J = """
status = off
rootLogger.level = debug
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c: %m%n%ex
"""


class LoggingRun:
    """Runs `klamm pipeline run` with an event log, and with all that Spark logs at the level DEBUG in a file."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.events = directory / "events"
        self.events.mkdir()
        self._log4j = directory / "log4j2.properties"
        self.log = directory / "spark.log"
        self._log4j.write_text(LOG4J.format(file=self.log))
        self._directory = directory

    def run(self, environment: Mapping[str, str]) -> "subprocess.CompletedProcess[bytes]":
        """Read what is there."""
        options = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": f"file://{self.events}",
            "spark.driver.extraJavaOptions": f"{QUICK_START} -Dlog4j2.configurationFile={self._log4j}",
            "spark.ui.enabled": "false",
        }
        given = " ".join(f"--conf '{name}={text}'" for name, text in options.items())
        submit = {"PYSPARK_SUBMIT_ARGS": f"--master local[2] {given} pyspark-shell", "JAVA_HOME": java_home()}
        command = ["-m", "klamm", "pipeline", "run", "orders.yaml", "--available-now", "--verbose"]
        return subprocess.run(
            [sys.executable, *command],
            cwd=self._directory,
            env={**os.environ, **submit, "PYSPARK_PYTHON": sys.executable, **environment},
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )


@pytest.mark.timeout(2 * TIMEOUT_S + 60)
def test_a_secret_of_a_pipeline_is_in_no_plan_log_error_event_log_or_checkpoint(
    cluster: Cluster, tmp_path: Path, client_rounds: int
) -> None:
    if client_rounds == 1:
        pytest.skip("it takes half a minute: `make prove` runs it")
    topic = f"secrets-{uuid4().hex[:8]}"
    cluster.create_topic(topic, 2)
    secret, directory = tmp_path / "secret", tmp_path / "job"
    secret.write_text(RIGHT)
    job = LoggingRun(directory)
    (directory / "order.avsc").write_text(json.dumps(ORDER))
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(ORDER), {"id": 7})
    producer = Producer({"bootstrap.servers": cluster.bootstrap})

    with schema_registry({1: ORDER}, RIGHT) as registry:
        runs = []
        for schema_id, auth in ((1, f"file:{secret}"), (2, "env:REGISTRY_LOGIN")):
            given = {"bootstrap": cluster.bootstrap, "topic": topic, "registry": registry.url, "auth": auth}
            (directory / "orders.yaml").write_text(PIPELINE.format(**given))
            producer.produce(topic, b"\0\0\0\0" + bytes([schema_id]) + body.getvalue())
            assert producer.flush(30) == 0
            runs.append(job.run({"REGISTRY_LOGIN": WRONG}))

    good, refused = runs
    assert b"has read 1 rows" in good.stdout, good.stderr[-3000:]
    assert b"schemas/ids/2: it answers with status 401" in refused.stderr, refused.stderr[-3000:]
    assert refused.returncode == 1
    assert list(dict.fromkeys(registry.logins)) == [RIGHT, WRONG]
    assert b"DEBUG org.apache.spark" in job.log.read_bytes()
    events = b"".join(path.read_bytes() for path in job.events.rglob("*") if path.is_file())
    assert b"physicalPlanDescription" in events
    assert b"klamm" in events
    files = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert any("checkpoint" in path.parts and path.parent.name == "commits" for path in files)
    printed: dict[object, bytes] = {"stdout": good.stdout + refused.stdout, "stderr": good.stderr + refused.stderr}
    texts = {str(where): text for where, text in [*files.items(), *printed.items()]}
    assert [where for where, text in texts.items() if any(leak in text for leak in LEAKS)] == []
