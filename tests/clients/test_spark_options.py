"""Each option of Apache Kafka's own consumer and producer is in one of the tables of the source, and of the sink."""

import re

import pytest
from tests.support import apache_kafka
from tests.support.kafka_tools import kafka_tools

from klamm.spark.option_set import OptionSet
from klamm.spark.option_table import READ_OPTIONS
from klamm.spark.sink_options import WRITE_OPTIONS


@pytest.mark.parametrize("options", [READ_OPTIONS, WRITE_OPTIONS], ids=["source", "sink"])
@pytest.mark.parametrize("client", ["consumer.ConsumerConfig", "producer.ProducerConfig"])
def test_klamms_spark_formats_apply_ignore_with_a_reason_or_refuse_every_kafka_client_option(
    client: str, options: OptionSet
) -> None:
    if why := apache_kafka.why_missing():
        pytest.skip(why)
    page = kafka_tools().run_class(f"org.apache.kafka.clients.{client}").output
    names = set(re.findall(r'<a id="\w+?_([a-z.0-9]+)"', page))
    assert len(names) > 50, page[:500]

    applied = {option.name.lower() for option in options.table}
    known = {
        n
        for n in (f"kafka.{name}" for name in names)
        if n.lower() in applied or options.reason_without_effect(n) or options.refusal(n)
    }

    assert sorted({f"kafka.{name}" for name in names} - known) == []
