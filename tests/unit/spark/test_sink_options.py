"""Options of writes: defaults, contradictions, and those that are refused or change nothing."""

import pytest

from klamm.spark.errors import BadOption
from klamm.spark.option_set import Reads
from klamm.spark.sink_kafka_options import NOT_FOR_WRITES, WRITES_REFUSE
from klamm.spark.sink_options import SINK_TABLE, WRITE_OPTIONS, Delivery, WriteOptions, write_options
from klamm.wire.compression import Codec

LEAST = {"kafka.bootstrap.servers": "one:9092"}
ONCE = {"delivery": "exactly-once"}


def write(kind: Reads = Reads.BATCH, **given: str) -> WriteOptions:
    """Two underscores stand for a dot."""
    return write_options(LEAST | {name.replace("__", "."): value for name, value in given.items()}, kind)


def test_a_write_is_at_least_once_and_idempotent_unless_options_say_otherwise() -> None:
    assert write().delivery is Delivery.AT_LEAST_ONCE
    assert write().is_idempotent
    assert not write(kafka__acks="1").is_idempotent
    assert not write(kafka__enable__idempotence="false").is_idempotent
    assert write(Reads.STREAM, DELIVERY="Exactly-Once").delivery is Delivery.EXACTLY_ONCE


def test_the_level_is_that_of_the_codec() -> None:
    given = {"kafka.compression.gzip.level": "9", "kafka.compression.zstd.level": "-5"}

    assert write_options(LEAST | given | {"kafka.compression.type": "zstd"}, Reads.BATCH).send[1:3] == (Codec.ZSTD, -5)
    assert write_options(LEAST | given | {"kafka.compression.type": "snappy"}, Reads.BATCH).send.level is None


def test_the_commit_topic_is_read_with_the_brokers_and_times_of_the_write() -> None:
    reads = write(kafka__max__block__ms="1500", kafka__client__id="me", commitTopic="mine").reads

    assert (reads.api_timeout_s, reads.client_id, reads.subscription.topics) == (1.5, "me", ("mine",))
    assert reads.read_committed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "contradict each other; set kafka.acks to all"),
        (ONCE | {"writeId": "w", "kafka.acks": "1"}, "delivery=exactly-once needs kafka.acks=all"),
        (ONCE | {"writeId": "w", "kafka.enable.idempotence": "false"}, "needs kafka.acks=all and kafka.enable"),
        (ONCE, "option writeId is missing"),
        ({"writeId": "w"}, "writeId is only for delivery exactly-once"),
        (ONCE | {"writeId": "a:b"}, "cannot be the name of a write; give 1 to 200 letters"),
        ({"topic": "a b"}, "is not a topic name; give 1 to 249 letters"),
        ({"writeBatch": "-1"}, "is not a whole number of at least 0"),
        (
            {"kafka.compression.gzip.level": "10"},
            "compression level '10' is not valid; give a whole number from -1 to 9",
        ),
        ({"tpic": "x"}, r"option tpic does not exist\. Did you mean topic"),
    ],
)
def test_contradictory_and_invalid_options_of_a_spark_write_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        write_options(LEAST | given, Reads.BATCH)


def test_a_streaming_write_has_the_name_of_its_query() -> None:
    with pytest.raises(BadOption, match="writeId is only for batch writes, and this is a streaming write"):
        write(Reads.STREAM, delivery="exactly-once", writeId="w")


def test_a_spark_write_without_bootstrap_servers_is_refused() -> None:
    with pytest.raises(BadOption, match=r"kafka\.bootstrap\.servers is missing"):
        write_options({"topic": "orders"}, Reads.BATCH)


@pytest.mark.parametrize("name", WRITES_REFUSE)
def test_an_unsupported_option_of_a_write_is_refused_with_its_reason(name: str) -> None:
    given = name.replace("*", "mechanism")

    with pytest.raises(BadOption) as caught:
        write_options(LEAST | {given: "1"}, Reads.BATCH)

    assert str(caught.value) == f"option {given} must not be set, because {WRITES_REFUSE[name]}"


@pytest.mark.parametrize("name", NOT_FOR_WRITES)
def test_an_option_without_effect_on_writes_is_accepted_and_a_warning_says_why(name: str) -> None:
    assert write_options(LEAST | {name: "1"}, Reads.BATCH) == write()
    with pytest.warns(UserWarning, match="has no effect") as warned:
        WRITE_OPTIONS.warn_without_effect({name.upper(): "1"})
    assert [str(w.message) for w in warned] == [f"option {name.upper()} has no effect: {NOT_FOR_WRITES[name]}"]


def test_no_option_of_a_write_is_in_two_tables() -> None:
    names = [n.lower() for n in (*(o.name for o in SINK_TABLE), *NOT_FOR_WRITES, *WRITES_REFUSE)]

    assert len(names) == len(set(names))
