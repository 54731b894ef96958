"""One suite over klamm's and Spark's own sink, against klamm nodes: the same records, and errors in the same cases."""

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.contracts.spark.sink_cases import PARTITIONS, SINK_DIFFERENCES, sink_cases
from tests.contracts.spark.test_official_connector import KLAMM, ONE_NODE, TIMEOUT_S, parametrize_cases, run
from tests.support import official_connector
from tests.support.cluster import Cluster

FORMATS = ("klamm", "kafka")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each case of the sink beside Spark's own, or skip them all in `make test`."""
    parametrize_cases(metafunc, "sink_case", [c.name for c in sink_cases()])


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One node with a topic for each format and case."""
    overrides = ONE_NODE | {"auto.create.topics.enable": "false"}
    with Cluster(tmp_path_factory.mktemp("cluster"), 1, overrides=overrides) as cluster:
        for name in FORMATS:
            for number in range(len(sink_cases())):
                cluster.create_topic(f"sink-{name}-{number}", PARTITIONS, 1)
        yield cluster.bootstrap


Written = dict[str, tuple[dict[str, Any], dict[str, Any]]]


@pytest.fixture(scope="module")
def written(prepared: str, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """By case: what klamm and what the official connector answered and wrote."""
    if not official_connector.can_fetch():
        pytest.skip("there is no Maven (mvn) to fetch Spark's own Kafka connector")
    official_connector.fetch()
    directory = tmp_path_factory.mktemp("contract")
    cases = sink_cases()
    jars = {"spark.jars": official_connector.jars()}
    with ThreadPoolExecutor() as pool:
        mine = pool.submit(run, "klamm", sys.executable, prepared, directory, KLAMM, cases)
        theirs = pool.submit(run, "kafka", str(official_connector.PYTHON), prepared, directory, jars, cases)
        found: Written = {}
        for number, (case, m, t) in enumerate(zip(cases, mine.result(), theirs.result(), strict=True)):
            for name, result in zip(FORMATS, (m, t), strict=True):
                result["records"] = records(prepared, f"sink-{name}-{number}")
            found[case.name] = (m, t)
        return found


def records(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """What a topic has, sorted; the partition only of records with a key, since others may be anywhere."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "sink", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
    found: list[tuple[Any, ...]] = []
    at_end = 0
    while at_end < PARTITIONS:
        message = consumer.poll(20)
        assert message is not None, topic
        if message.error():
            at_end += 1
            continue
        partition = None if message.key() is None else message.partition()
        found.append((partition, message.key(), message.value(), message.headers()))
    consumer.close()
    return sorted(found, key=repr)


def comparable(found: Mapping[str, Any]) -> Any:
    """What must be equal: the records, or that it is an error."""
    return "error" if "error" in found else found["records"]


@pytest.mark.timeout(2 * TIMEOUT_S)
def test_klamms_spark_sink_writes_the_same_records_as_sparks_official_kafka_sink(
    sink_case: str, written: Written
) -> None:
    mine, theirs = written[sink_case]
    texts = [str(found)[:1_500] for found in (mine, theirs)]
    if sink_case in SINK_DIFFERENCES:
        assert ("error" if "error" in mine else "rows") == SINK_DIFFERENCES[sink_case].klamm, texts
        assert comparable(mine) != comparable(theirs), "they do not differ any more: remove the difference"
        return
    assert comparable(mine) == comparable(theirs), texts


def test_every_listed_difference_from_sparks_kafka_sink_names_an_existing_case_and_a_reason() -> None:
    names = [case.name for case in sink_cases()]

    assert set(SINK_DIFFERENCES) <= set(names)
    assert all(difference.why for difference in SINK_DIFFERENCES.values())
    assert len(set(names)) == len(names) >= 80
