"""Every option is known by Spark's name or refused by name, with the nearest known one."""

import pytest

from klamm.client.offsets import EARLIEST, LATEST
from klamm.model.ids import TopicPartition
from klamm.spark.errors import BadOption
from klamm.spark.kafka_options import NO_EFFECT, REFUSED
from klamm.spark.offsets import parse_offsets
from klamm.spark.option_parsers import OnDataLoss
from klamm.spark.option_set import Option, Reads
from klamm.spark.option_table import READ_OPTIONS, TABLE
from klamm.spark.options import NO_OPTIONS, ReadOptions, read_options

LEAST = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders"}


def refusal(**options: str) -> str:
    """The text with which the options are refused."""
    with pytest.raises(BadOption) as caught:
        read_options(LEAST | {k.replace("__", "."): v for k, v in options.items()})
    return str(caught.value)


def test_unset_options_of_the_spark_source_have_the_defaults_of_sparks_connector() -> None:
    options = read_options(LEAST)

    assert options.bootstrap == (("a", 1),)
    assert options.subscription.topics == ("orders",)
    assert (options.start.everywhere, options.end.everywhere) == (EARLIEST, LATEST)
    assert options.on_data_loss is OnDataLoss.FAIL
    assert not options.include_headers
    assert not options.read_committed
    assert options.min_partitions is None
    assert options.max_records_per_partition is None


def test_spark_option_names_are_not_case_sensitive() -> None:
    options = read_options(
        {"KAFKA.bootstrap.SERVERS": "h:9, [::1]:10", "SubscribePattern": "o.*", "INCLUDEheaders": "True"}
    )

    assert options.bootstrap == (("h", 9), ("::1", 10))
    assert options.subscription.pattern == "o.*"
    assert options.include_headers


MISSPELT = {
    "startingOffset": "startingOffsets",
    "failOnDataloses": "failOnDataLoss",
    "kafka.bootstrap.server": "kafka.bootstrap.servers",
    "bootstrap.servers": "kafka.bootstrap.servers",
    "includeHeader": "includeHeaders",
    "maxRecordsPerPartitions": "maxRecordsPerPartition",
    "topic.subscribe": "subscribe",
}


@pytest.mark.parametrize(("given", "nearest"), MISSPELT.items())
def test_an_unknown_source_option_is_refused_with_the_nearest_known_option(given: str, nearest: str) -> None:
    message = refusal(**{given: "1"})

    assert given.lower() in message
    assert message.endswith(f"Did you mean {nearest}?")


def test_an_unknown_source_option_without_a_similar_name_is_refused_with_all_options() -> None:
    message = refusal(zzz="1")

    assert all(option.name in message for option in TABLE)


@pytest.mark.parametrize("name", REFUSED)
def test_an_unsupported_source_option_is_refused_with_the_reason(name: str) -> None:
    given = name.replace("*", "mechanism")

    assert refusal(**{given: "1"}) == f"option {given} must not be set, because {REFUSED[name]}"


@pytest.mark.parametrize("name", NO_EFFECT)
def test_a_source_option_without_effect_is_accepted_with_a_warning_that_says_why(name: str) -> None:
    assert read_options(LEAST | {name: "1"}) == read_options(LEAST)
    with pytest.warns(UserWarning, match="has no effect") as warned:
        READ_OPTIONS.warn_without_effect({name.upper(): "1"})
    assert [str(w.message) for w in warned] == [f"option {name.upper()} has no effect: {NO_EFFECT[name]}"]


def test_each_spark_option_is_listed_as_supported_ignored_or_refused_but_only_once() -> None:
    names = [o.name.lower() for o in TABLE] + [n.lower() for n in NO_EFFECT] + [n.lower() for n in REFUSED]

    assert len(names) == len(set(names))


def test_the_error_for_a_read_without_options_explains_how_sql_tables_get_options() -> None:
    with pytest.raises(BadOption) as caught:
        read_options({})

    assert str(caught.value) == NO_OPTIONS


class TestStreaming:
    def read(self, **options: str) -> ReadOptions:
        return read_options(LEAST | options, Reads.STREAM)

    def test_a_spark_stream_starts_at_latest_unless_options_set_another_start(self) -> None:
        assert self.read().start.everywhere == LATEST
        assert self.read(startingOffsets="Earliest").start.everywhere == EARLIEST
        each = self.read(startingOffsets='{"orders": {"0": -1, "1": 7}}').start.each
        assert each == {TopicPartition("orders", 0): -1, TopicPartition("orders", 1): 7}

    @pytest.mark.parametrize("option", [o for o in TABLE if o.reads is Reads.BATCH], ids=lambda o: o.name)
    def test_an_option_that_applies_only_to_batch_reads_is_refused_in_a_stream(self, option: Option) -> None:
        with pytest.raises(BadOption, match=f"{option.name} is only for batch reads, and this is a streaming read"):
            self.read(**{option.name: "1"})

    @pytest.mark.parametrize("option", [o for o in TABLE if o.reads is Reads.STREAM], ids=lambda o: o.name)
    def test_an_option_that_applies_only_to_streams_is_refused_in_a_batch_read(self, option: Option) -> None:
        assert refusal(**{option.name: "1"}).startswith(f"option {option.name} is only for streaming reads")

    def test_limits_per_trigger_accept_sizes_and_durations_with_units(self) -> None:
        limits = self.read(
            maxOffsetsPerTrigger="1000", minOffsetsPerTrigger="10", maxTriggerDelay="2m", maxBytesPerTrigger="64m"
        ).trigger

        assert limits == (1_000, 64 << 20, 10, 120.0)

    def test_a_minimum_per_trigger_above_the_maximum_per_trigger_is_refused(self) -> None:
        with pytest.raises(BadOption, match="minOffsetsPerTrigger=11 is more than maxOffsetsPerTrigger=10"):
            self.read(maxOffsetsPerTrigger="10", minOffsetsPerTrigger="11")

    @pytest.mark.parametrize("text", ["1x", "-1s", "s", "15 minutes ago", ""])
    def test_an_invalid_duration_of_a_source_option_is_refused(self, text: str) -> None:
        with pytest.raises(BadOption, match=r"option maxTriggerDelay is not valid: .* is not a duration"):
            self.read(maxTriggerDelay=text)


LOSS = {
    "default": ({}, "fail"),
    "failOnDataLoss true": ({"failOnDataLoss": "true"}, "fail"),
    "failOnDataLoss false": ({"failOnDataLoss": "false"}, "skip"),
    "onDataLoss": ({"onDataLoss": "Report"}, "report"),
    "both agree": ({"onDataLoss": "report", "failOnDataLoss": "false"}, "report"),
}


@pytest.mark.parametrize(("given", "expected"), LOSS.values(), ids=LOSS)
def test_the_options_fail_on_data_loss_and_on_data_loss_change_the_same_setting(
    given: dict[str, str], expected: str
) -> None:
    assert read_options(LEAST | given).on_data_loss == expected


@pytest.mark.parametrize(("loss", "fails"), [("fail", "false"), ("skip", "true"), ("report", "true")])
def test_contradictory_values_of_fail_on_data_loss_and_on_data_loss_are_refused(loss: str, fails: str) -> None:
    assert "contradict each other; remove failOnDataLoss" in refusal(onDataLoss=loss, failOnDataLoss=fails)


ENDS_BEFORE = {
    "offsets": (
        {"startingOffsets": '{"orders": {"0": 20, "1": 3}}', "endingOffsets": '{"orders": {"1": 3, "0": 19}}'},
        "startingOffsets and endingOffsets contradict each other: the read would begin at 20 and end before 19 for "
        "orders-0; correct one of them",
    ),
    "times": (
        {"startingTimestamp": "2000", "endingTimestamp": "1999"},
        "startingTimestamp and endingTimestamp contradict each other: the read would begin at 2000 and end before "
        "1999; correct one of them",
    ),
    "a time and times of partitions": (
        {"startingTimestamp": "2000", "endingOffsetsByTimestamp": '{"orders": {"0": 1}}'},
        "begin at 2000 and end before 1 for orders-0",
    ),
}


@pytest.mark.parametrize(("given", "expected"), ENDS_BEFORE.values(), ids=ENDS_BEFORE)
def test_a_read_that_would_end_before_it_begins_is_refused(given: dict[str, str], expected: str) -> None:
    assert expected in refusal(**given)


def test_a_read_that_ends_where_it_begins_is_accepted() -> None:
    read_options(LEAST | {"startingTimestamp": "2000", "endingTimestamp": "2000"})
    read_options(LEAST | {"startingOffsets": '{"orders": {"0": -2}}', "endingOffsets": '{"orders": {"0": 0}}'})


WRONG = {
    "no bootstrap port": ("kafka.bootstrap.servers", "host", "'host' is not HOST:PORT"),
    "bootstrap port too high": ("kafka.bootstrap.servers", "host:99999", "is not HOST:PORT"),
    "no bootstrap at all": ("kafka.bootstrap.servers", " , ", "names no broker"),
    "no topic": ("subscribe", ",", "names no topic"),
    "no boolean": ("failOnDataLoss", "yes", "give true or false"),
    "no number": ("minPartitions", "many", "is not a whole number of at least 1"),
    "zero": ("maxRecordsPerPartition", "0", "is not a whole number of at least 1"),
    "unknown isolation level": ("kafka.isolation.level", "x", "give read_uncommitted or read_committed"),
    "unsupported security protocol": ("kafka.security.protocol", "SSL", "only to PLAINTEXT listeners, not to 'SSL'"),
    "starts at the end": ("startingOffsets", "latest", "read nothing in a batch read; give earliest or"),
    "ends at the start": ("endingOffsets", "earliest", "read nothing in a batch read; give latest or"),
    "neither word nor JSON": ("startingOffsets", "first", "give JSON, for example"),
    "JSON of another shape": ("startingOffsets", '["orders"]', "give JSON, for example"),
    "an offset that is text": ("startingOffsets", '{"orders": {"0": "1"}}', "give JSON, for example"),
    "partition that is not a number": ("startingOffsets", '{"orders": {"x": 1}}', "give JSON, for example"),
    "a negative partition": ("startingOffsets", '{"orders": {"-1": 1}}', "give JSON, for example"),
    "no partition": ("startingOffsets", "{}", "has no partition"),
    "latest as a starting offset": ("startingOffsets", '{"orders": {"0": -1}}', "has -1 (latest) for orders-0"),
    "earliest as an ending offset": ("endingOffsets", '{"orders": {"0": -2}}', "has -2 (earliest) for orders-0"),
    "below earliest": ("endingOffsets", '{"orders": {"0": -3}}', "has -3 for orders-0"),
    "time that is not a number": ("startingTimestamp", "2026-01-01", "give milliseconds since 1970"),
    "a negative time": ("endingOffsetsByTimestamp", '{"orders": {"0": -5}}', "has -5 for orders-0"),
    "subscribe and assign together": ("assign", '{"orders": [0]}', "subscribe and assign are set"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "value", "expected"), WRONG.values(), ids=WRONG)
def test_an_invalid_source_option_value_is_refused_with_option_name_value_and_remedy(
    name: str, value: str, expected: str
) -> None:
    message = refusal(**{name: value})

    assert expected in message
    assert name in message


def test_the_error_for_a_missing_required_source_option_names_the_option() -> None:
    with pytest.raises(BadOption, match=r"kafka\.bootstrap\.servers is missing"):
        read_options({"subscribe": "x"})
    with pytest.raises(BadOption, match=r"subscribe, subscribePattern, assign: none is set"):
        read_options({"kafka.bootstrap.servers": "a:1"})


@pytest.mark.parametrize("pattern", ["(", "*", "", " "])
def test_an_invalid_value_of_the_option_subscribe_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(
        BadOption, match=r"option subscribePattern is not valid: .*(is not a regular expression|is empty)"
    ):
        read_options({"kafka.bootstrap.servers": "a:1", "subscribePattern": pattern})


@pytest.mark.parametrize("assigned", ["orders", "{}", '{"orders": 0}', '{"orders": [true]}', '{"orders": [-1]}'])
def test_an_invalid_value_of_the_option_assign_is_refused(assigned: str) -> None:
    with pytest.raises(BadOption, match="option assign"):
        read_options({"kafka.bootstrap.servers": "a:1", "assign": assigned})


def test_partitions_given_in_the_assign_option_are_sorted() -> None:
    options = read_options({"kafka.bootstrap.servers": "a:1", "assign": '{"b": [1, 0], "a": ["10", 9]}'})

    assert options.subscription.partitions == (("a", 9), ("a", 10), ("b", 0), ("b", 1))


def test_offsets_given_in_a_source_option_are_sorted_by_partition_number() -> None:
    parsed = parse_offsets("startingOffsets", '{"b": {"10": 1, "9": -2}, "a": {"0": 3}}')

    assert list(parsed.items()) == [(("a", 0), 3), (("b", 9), -2), (("b", 10), 1)]


def test_a_global_timestamp_option_overrides_per_partition_timestamps_and_these_override_offsets() -> None:
    times, offsets = '{"orders": {"0": 5}}', '{"orders": {"0": 7}}'
    all_three = {"endingTimestamp": "9", "endingOffsetsByTimestamp": times, "endingOffsets": offsets}
    zero = TopicPartition("orders", 0)

    def end(*names: str) -> tuple[int, bool]:
        found = read_options(LEAST | {n: all_three[n] for n in names}).end
        return found.of(zero), found.by_time

    assert end("endingOffsets") == (7, False)
    assert end("endingOffsets", "endingOffsetsByTimestamp") == (5, True)
    assert end(*all_three) == (9, True)


@pytest.mark.parametrize(
    "read",
    [{"subscribe": "a,orders.dlq"}, {"subscribePattern": "^orders"}, {"assign": '{"orders.dlq": [3]}'}],
    ids=lambda read: next(iter(read)),
)
def test_a_read_that_includes_its_topic_of_dead_letters_is_refused(read: dict[str, str]) -> None:
    options = {"kafka.bootstrap.servers": "a:1", "valueFormat": "string", "onDecodeError": "deadletter:orders.dlq"}

    with pytest.raises(BadOption, match=r"onDecodeError=deadletter:orders\.dlq writes to a topic that is read: name"):
        read_options(options | read)
    assert read_options(options | {"subscribe": "orders"}).values.on_error.dead_letters == "orders.dlq"
