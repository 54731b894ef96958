"""Each option of reads and writes with values that it cannot have: one sentence names option, value and remedy."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.spark.scripts import log, offsets_read, plan, scripted

from klamm.spark.errors import BadOption
from klamm.spark.option_set import Option, Reads
from klamm.spark.option_table import TABLE
from klamm.spark.options import read_options
from klamm.spark.read_client import MAX_CONNECT_S, settings_of
from klamm.spark.sink_options import SINK_TABLE, write_options

LONGEST = str(2**63 - 1)
BEYOND_INT, BEYOND_LONG, HUGE = str(2**31), str(2**63), "9" * 5_000
NUMBERS = ("", "0", "-1", "1.5", "1e3", "many", "1_000", BEYOND_LONG, HUGE)
TIMES = ("", "-1", "2026-01-01", "1.5", "²", BEYOND_LONG, HUGE)
BY_PARTITION = ("", "[]", "{", '{"orders": 1}', '{"orders": {"0": "1"}}', f'{{"orders": {{"0": {BEYOND_LONG}}}}}',
                f'{{"orders": {{"{BEYOND_INT}": 1}}}}')  # fmt: skip
ANY = ("kafka.client.id",)
"""Every text is a value of these."""
WRONG = {
    "kafka.bootstrap.servers": ("", "host", "host:0", "host:65536", "host:port", ":9092"),
    "logDirs": ("", "relative/path", "/data,relative"),
    "subscribe": ("", " , "),
    "subscribePattern": ("", "(", "[a", "a{2,1}", "\\"),
    "assign": ("", "orders", "{}", '{"orders": 0}', f'{{"orders": [{BEYOND_INT}]}}'),
    "startingOffsets": (*BY_PARTITION[1:], "first", '{"orders": {"0": -3}}'),
    "endingOffsets": (*BY_PARTITION[1:], "last", '{"orders": {"0": -3}}'),
    "startingOffsetsByTimestamp": (*BY_PARTITION, '{"orders": {"0": -1}}'),
    "endingOffsetsByTimestamp": (*BY_PARTITION, '{"orders": {"0": -1}}'),
    "startingTimestamp": TIMES,
    "endingTimestamp": TIMES,
    "maxBytesPerTrigger": ("", "0", "-1", "1x", "many", f"{LONGEST}k", HUGE),
    "maxTriggerDelay": ("", "15", "-1s", "1y", "soon", HUGE),
    "valueSchema": ("", " "),
    "schemaRegistry": ("", "schemas:8081", "ftp://schemas", "http://"),
    "schemaRegistryAuth": ("", "me", "env:", "file:", "vault:x"),
    "onDecodeError": ("", "skip", "deadletter", "deadletter:", "deadletter:a b"),
    "topic": ("", "a b", ".", "..", "a" * 250),
    "commitTopic": ("", "a b", ".", "..", "a" * 250),
    "writeId": ("", "a b", "a:b", "a" * 201),
    "writeBatch": ("", "-1", "1.5", "first", HUGE),
    "kafka.compression.gzip.level": ("", "10", "-2", "best", HUGE),
    "kafka.compression.lz4.level": ("", "0", "18", "best", HUGE),
    "kafka.compression.zstd.level": ("", "23", "-131073", "best", HUGE),
}
"""Of the others, their parser says what they cannot be."""
OF_PARSERS = {
    "parse_boolean": ("", "yes", "1", "truth"),
    "parse_positive": NUMBERS,
    "parse_milliseconds": (*NUMBERS, "10s"),
    "parse_int": (*NUMBERS, BEYOND_INT),
    "parse_int_milliseconds": (*NUMBERS, BEYOND_INT, "10s"),
    "parse_plaintext": ("", "SSL", "SASL_SSL"),
    "parse_on_data_loss": ("", "ignore"),
    "parse_delivery": ("", "exactly once", "twice"),
    "parse": ("", "other"),
}
READ = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders"}
WRITE = {"kafka.bootstrap.servers": "a:1"}
Check = Callable[[dict[str, str], Reads], Any]


def wrong_values(option: Option) -> tuple[str, ...]:
    return WRONG.get(option.name) or OF_PARSERS[option.parse.__name__]


def cases() -> Iterator[Any]:
    for what, table, least, check in (("read", TABLE, READ, read_options), ("write", SINK_TABLE, WRITE, write_options)):
        for option in table:
            for kind in (k for k in (Reads.BATCH, Reads.STREAM) if k in option.reads and option.name not in ANY):
                for value in wrong_values(option):
                    name = f"{what} {'batch' if kind is Reads.BATCH else 'stream'} {option.name}={value[:20]!r}"
                    yield pytest.param(check, {**least, option.name: value}, kind, option.name, id=name)


@pytest.mark.parametrize(("check", "given", "kind", "name"), list(cases()))
def test_a_wrong_value_of_an_option_is_refused_in_a_sentence_with_option_and_remedy(
    check: Check, given: dict[str, str], kind: Reads, name: str
) -> None:
    with pytest.raises(BadOption) as caught:
        check(given, kind)

    message = str(caught.value)
    assert re.match(rf"option {re.escape(name)}(?![\w.])", message), message[:200]
    assert re.search(r"\b(give|set|remove|correct|close|write)\b", message), message[:200]
    assert "\n" not in message
    assert "Traceback" not in message


@pytest.mark.parametrize("kind", [Reads.BATCH, Reads.STREAM], ids=["batch", "stream"])
def test_the_largest_numbers_of_kafkas_configs_are_taken(kind: Reads) -> None:
    """Java's clients take `Long.MAX_VALUE` and `Integer.MAX_VALUE` for no limit."""
    largest = {"parse_positive": LONGEST, "parse_milliseconds": LONGEST}
    largest |= dict.fromkeys(("parse_int", "parse_int_milliseconds"), str(2**31 - 1))

    def of(table: tuple[Option, ...]) -> dict[str, str]:
        return {o.name: largest[o.parse.__name__] for o in table if kind in o.reads and o.parse.__name__ in largest}

    reads = read_options(READ | of(TABLE), kind)
    assert write_options(WRITE | of(SINK_TABLE), kind).transaction_timeout_ms == 2**31 - 1
    assert settings_of(reads).connect_timeout_s == MAX_CONNECT_S


def test_a_read_with_the_largest_numbers_sends_requests_that_can_have_them() -> None:
    world = scripted(orders_0=log(0, 20))
    largest = {o.name: str(2**31 - 1) for o in TABLE if o.parse.__name__ in ("parse_int", "parse_int_milliseconds")}
    given = {name: value for name, value in largest.items() if not name.endswith("min.bytes")}

    assert offsets_read(world, *plan(world, **given), **given) == list(range(20))
