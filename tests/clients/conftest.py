"""One cluster of three nodes for the tests that break nothing; whose brokers they are, `--brokers` says."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.group_members import Members, group_members
from tests.support.kafka_tools import KafkaTools, kafka_tools
from tests.support.spark import running_spark

from klamm.embedded.nodes import Command, klamm_node


@pytest.fixture(scope="session")
def node_command(request: pytest.FixtureRequest) -> Command:
    if request.config.getoption("--brokers") == "apache":
        if why := apache_kafka.why_missing():
            pytest.skip(why)
        return apache_kafka.broker()
    return klamm_node


@pytest.fixture(scope="session")
def cluster(node_command: Command, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, all up: leave them so, and use topics of your own."""
    with Cluster(tmp_path_factory.mktemp("cluster"), command=node_command) as running:
        yield running


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests of this process: it takes seconds to start."""
    with running_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def own_name(request: pytest.FixtureRequest) -> str:
    """The test's name, for a topic, a group or a transactional id of its own."""
    return re.sub(r"[^a-z0-9-]", "-", request.node.name)


@pytest.fixture
def members(cluster: Cluster, tmp_path: Path, name: str) -> Iterator[Members]:
    """Members of a group that read a topic; the test's fixture `name` is the name of both."""
    with group_members(tmp_path / "members", cluster.bootstrap, name, name) as running:
        yield running


@pytest.fixture(scope="session")
def tools() -> KafkaTools:
    """Apache Kafka's own tools."""
    if why := apache_kafka.why_missing():
        pytest.skip(why)
    return kafka_tools()
