"""Each option of Apache Kafka's own consumer and producer is in one of the tables of the source."""

import re

import pytest
from tests.support import apache_kafka
from tests.support.kafka_tools import kafka_tools

from klamm.spark.kafka_options import reason_without_effect, refusal
from klamm.spark.option_table import BY_NAME


@pytest.mark.parametrize("client", ["consumer.ConsumerConfig", "producer.ProducerConfig"])
def test_the_spark_source_applies_ignores_with_a_reason_or_refuses_every_kafka_client_option(client: str) -> None:
    if why := apache_kafka.why_missing():
        pytest.skip(why)
    page = kafka_tools().run_class(f"org.apache.kafka.clients.{client}").output
    names = set(re.findall(r'<a id="\w+?_([a-z.0-9]+)"', page))
    assert len(names) > 50, page[:500]

    known = {
        n for n in names if f"kafka.{n}" in BY_NAME or reason_without_effect(f"kafka.{n}") or refusal(f"kafka.{n}")
    }

    assert sorted(names - known) == []
