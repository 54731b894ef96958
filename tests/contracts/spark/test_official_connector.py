"""One suite over klamm and Spark's own connector, against klamm nodes: the same rows, and errors in the same cases."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from tests.contracts.spark.cases import DIFFERENCES, FIRST_MS, Case, all_cases, outcome
from tests.contracts.spark.sink_cases import SinkCase
from tests.support import official_connector
from tests.support.cluster import Cluster
from tests.support.spark import QUICK_START

RUNNER = Path(__file__).parent / "runner.py"
TIMEOUT_S = 900
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
}
KLAMM = {"spark.python.unix.domain.socket.enabled": "true"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each case of the source beside Spark's own, or skip them all in `make test`."""
    parametrize_cases(metafunc, "name", [c.name for c in all_cases()])


def parametrize_cases(metafunc: pytest.Metafunc, fixture: str, names: Sequence[str]) -> None:
    """Parametrize `fixture` with the names of the cases.

    Two Spark sessions start for any number of cases, and one needs another PySpark: `make test` leaves them out.
    """
    if fixture not in metafunc.fixturenames:
        return
    if metafunc.config.getoption("--connector-cases"):
        metafunc.parametrize(fixture, names)
    else:
        skip = pytest.mark.skip(reason="`make prove ONLY=spark-connector` runs all cases")
        metafunc.parametrize(fixture, [pytest.param("", id="every case", marks=skip)])


def run(
    name: str,
    python: str,
    bootstrap: str,
    directory: Path,
    settings: Mapping[str, str],
    cases: Sequence[Case | SinkCase],
) -> list[dict[str, Any]]:
    """The results of the cases with one format."""
    job = {
        "format": name,
        "bootstrap": bootstrap,
        "directory": str(directory),
        "settings": SETTINGS | {"spark.sql.warehouse.dir": str(directory / f"warehouse-{name}")} | dict(settings),
        "cases": [case._asdict() for case in cases],
    }
    environment = {"PYSPARK_PYTHON": python, **environment_of(name)}
    done = subprocess.run(
        [python, str(RUNNER)], input=json.dumps(job), capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        env=environment, cwd=directory,
    )  # fmt: skip
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(cases), done.stderr[-3000:]
    return results


def environment_of(name: str) -> dict[str, str]:
    """The variables of this process; klamm's path only for klamm."""
    keep = {n: v for n, v in os.environ.items() if not n.startswith(("PYSPARK", "SPARK", "VIRTUAL_ENV"))}
    if name == "kafka":
        keep.pop("PYTHONPATH", None)
    return keep


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One node with the topics of the cases."""
    with Cluster(tmp_path_factory.mktemp("cluster"), 1, overrides=ONE_NODE) as cluster:
        topics = {"orders": 3, "payments": 1, "orders.eu": 1, "empty": 2, "compressed": 1, "trimmed": 1}
        for topic, partitions in topics.items():
            cluster.create_topic(topic, partitions, 1)
        cluster.create_topic("appended", 1, 1, {"message.timestamp.type": "LogAppendTime"})
        cluster.create_topic("transactional", 1, 1)
        fill(cluster.bootstrap)
        admin = cluster.admin()  # it must outlive the answer
        admin.delete_records([TopicPartition("trimmed", 0, 4)])[TopicPartition("trimmed", 0)].result(30)
        yield cluster.bootstrap


ONE_NODE = {
    "log.retention.ms": "-1",  # the records of the cases are old
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


def fill(bootstrap: str) -> None:
    """The records that the cases name."""
    plain = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    counts = {("orders", 0): 10, ("orders", 1): 5, ("payments", 0): 6, ("orders.eu", 0): 2, ("trimmed", 0): 9}
    for (topic, partition), count in {**counts, ("appended", 0): 3}.items():
        for n in range(count):
            key = None if n % 3 == 0 else b"k%d" % n
            headers: list[tuple[str, str | bytes | None]] = [("h", b"%d" % n), ("h", None)] if n % 2 else []
            value = None if n == 4 else b"%s %d" % (topic.encode(), n)
            plain.produce(topic, value, key, partition, timestamp=FIRST_MS + 1_000 * n, headers=headers)
    assert plain.flush(30) == 0
    packed = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd", "linger.ms": 100})
    for n in range(50):
        packed.produce("compressed", b"x" * n, b"%d" % n, 0, timestamp=FIRST_MS + n)
    assert packed.flush(30) == 0
    fill_transactions(bootstrap)


def fill_transactions(bootstrap: str) -> None:
    """A committed, an aborted and another committed transaction."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "contract"})
    producer.init_transactions(30)
    for word in (b"first", b"aborted", b"second"):
        producer.begin_transaction()
        for n in range(3):
            producer.produce("transactional", b"%s %d" % (word, n), partition=0, timestamp=FIRST_MS + n)
        producer.flush(30)
        if word == b"aborted":
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


@pytest.fixture(scope="module")
def results(
    prepared: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """By case: what klamm and what the official connector answered."""
    if not official_connector.can_fetch():
        pytest.skip("there is no Maven (mvn) to fetch Spark's own Kafka connector")
    official_connector.fetch()
    directory = tmp_path_factory.mktemp("contract")
    cases = all_cases()
    jars = {"spark.jars": official_connector.jars()}
    with ThreadPoolExecutor() as pool:
        mine = pool.submit(run, "klamm", sys.executable, prepared, directory, KLAMM, cases)
        theirs = pool.submit(run, "kafka", str(official_connector.PYTHON), prepared, directory, jars, cases)
        return {case.name: (m, t) for case, m, t in zip(cases, mine.result(), theirs.result(), strict=True)}


@pytest.mark.timeout(2 * TIMEOUT_S)
def test_klamms_spark_source_returns_the_rows_of_sparks_official_kafka_connector(
    name: str, results: dict[str, tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    mine, theirs = results[name]
    if name in DIFFERENCES:
        assert outcome(mine) == DIFFERENCES[name].klamm, mine
        assert comparable(mine) != comparable(theirs), "they do not differ any more: remove the difference"
        return
    assert comparable(mine) == comparable(theirs), f"klamm: {short(mine)}\nkafka: {short(theirs)}"


def comparable(found: Mapping[str, Any]) -> Any:
    """What must be equal: the schema, rows and the sizes of micro-batches, or that it is an error."""
    if outcome(found) == "error":
        return "error"
    return found["schema"], found["rows"], found.get("batches")


def short(found: Mapping[str, Any]) -> str:
    return json.dumps(found)[:1_500]


def test_every_listed_difference_from_sparks_connector_names_an_existing_case_and_a_reason() -> None:
    assert set(DIFFERENCES) <= {c.name for c in all_cases()}
    assert all(difference.why for difference in DIFFERENCES.values())


def test_the_comparison_with_sparks_connector_has_at_least_120_cases() -> None:
    names = [c.name for c in all_cases()]

    assert len(set(names)) == len(names) >= 120
