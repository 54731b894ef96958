"""Kafka's tools for records, groups and transactions say the same with klamm's brokers as with Apache Kafka's."""

from pathlib import Path

import pytest
from tests.support import apache_kafka
from tests.support.client_tool_talk import OVERRIDES, RECORDED, talk
from tests.support.cluster import Cluster
from tests.support.kafka_tools import kafka_tools

from klamm.embedded.nodes import Command


def test_kafkas_tools_print_the_same_for_klamms_brokers_as_for_apache_kafkas(
    node_command: Command, tmp_path: Path
) -> None:
    if why := apache_kafka.why_missing():
        pytest.skip(why)
    with Cluster(tmp_path / "cluster", command=node_command, overrides=OVERRIDES) as cluster:
        said = talk(kafka_tools(), cluster, tmp_path)

    assert said.split("\n\n") == RECORDED.read_text().split("\n\n")
