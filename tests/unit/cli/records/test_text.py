"""Delimiters, format strings and lines."""

import asyncio
from collections.abc import Iterable
from unittest.mock import patch

import pytest

from klamm.cli.commands.produce import parse_header
from klamm.cli.records import lines
from klamm.cli.records.text import Printed, argument_bytes, default_format, parse_delimiter, parse_format
from klamm.model.errors import UsageError
from klamm.wire.records import Record

RECORD = Printed("orders", 2, Record(7, 1_234, b"k", b"ab", (("h", b"1"), ("n", None))))
EMPTY = Printed("orders", 2, Record(8, 1_234, None, None))
FORMS = {
    "%t/%p@%o %T": b"orders/2@7 1234",
    r"%k=%s\n": b"k=ab\n",
    "%K,%S,%R": b"1,2,\x00\x00\x00\x02",
    "%h": b"h=1,n=",
    r"100%%\t\x41\\": b"100%\tA\\",
    "ä": "ä".encode(),
    "": b"",
}


@pytest.mark.parametrize(("text", "printed"), FORMS.items(), ids=FORMS)
def test_each_token_of_the_consume_format_option_prints_its_field_of_the_record(text: str, printed: bytes) -> None:
    assert parse_format(text)(RECORD) == printed


def test_the_consume_format_prints_null_differently_from_an_empty_value() -> None:
    assert parse_format("%k|%s|%K|%S", b"NULL")(EMPTY) == b"NULL|NULL|-1|-1"
    assert default_format(b":", b"\n", b"")(EMPTY) == b":\n"
    assert default_format(None, b"\0", b"NULL")(EMPTY) == b"NULL\0"


@pytest.mark.parametrize("text", ["%q", "%", r"\q", r"\x4", "a\\"])
def test_the_consume_format_option_refuses_unknown_tokens_and_escapes(text: str) -> None:
    with pytest.raises(UsageError, match="--format"):
        parse_format(text)


def test_delimiter_options_accept_escapes_and_refuse_an_empty_delimiter() -> None:
    assert parse_delimiter("-K", r"\t") == b"\t"
    assert parse_delimiter("-K", r"\xff::") == b"\xff::"
    with pytest.raises(UsageError, match="-K is empty"):
        parse_delimiter("-K", "")


def test_bytes_of_arguments_that_are_not_utf_8_are_kept() -> None:
    given = b"\xff:".decode(errors="surrogateescape")  # as Python has them in sys.argv

    assert argument_bytes(given) == b"\xff:"
    assert parse_delimiter("-K", rf"{given}\t") == b"\xff:\t"
    assert parse_format(f"{given}%s")(RECORD) == b"\xff:ab"
    assert parse_header(f"h={given}") == ("h", b"\xff:")
    with pytest.raises(UsageError, match="the name is not UTF-8"):
        parse_header(f"{given}=v")


class Blocks:
    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = [*blocks, b""]

    async def read(self) -> bytes:
        return self._blocks.pop(0)


async def split(delimiter: bytes, *blocks: bytes) -> list[bytes]:
    return [line async for found in lines.split_lines(Blocks(blocks), delimiter, "input") for line in found]


def test_input_lines_that_span_several_read_blocks_are_split_correctly() -> None:
    assert asyncio.run(split(b"\n", b"a\nb", b"c\n", b"\nd")) == [b"a", b"bc", b"", b"d"]
    assert asyncio.run(split(b"<>", b"a<", b">b<>")) == [b"a", b"b"]
    assert asyncio.run(split(b"\n")) == []
    assert asyncio.run(split(b"\n", b"\n")) == [b""]


def test_an_input_line_over_the_size_limit_is_refused_without_reading_to_its_end() -> None:
    with (
        patch.object(lines, "MAX_LINE_BYTES", 100),
        pytest.raises(UsageError, match="input: a line has more than 100 bytes"),
    ):
        asyncio.run(split(b"\n", *[b"x" * 60] * 1_000))
