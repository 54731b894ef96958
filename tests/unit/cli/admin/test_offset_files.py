"""CSV files of offsets, as kafka-consumer-groups has them."""

import pytest

from klamm.cli.admin.offset_files import format_offsets, parse_offsets_file
from klamm.model.errors import UsageError
from klamm.model.ids import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_exported_offsets_are_read_back_unchanged_from_the_csv_file() -> None:
    several = {"g,1": {P1: 7, P0: 5}, "h": {P0: 1}}
    lines = format_offsets(several, has_one_group=False)
    assert lines == ['"g,1",orders,0,5', '"g,1",orders,1,7', "h,orders,0,1"]
    assert parse_offsets_file("\n".join(lines), "f", None) == several
    lines = format_offsets({"g": {P0: 5}}, has_one_group=True)
    assert lines == ["orders,0,5"]
    assert parse_offsets_file("\n\norders,0,5\r\n", "f", "g") == {"g": {P0: 5}}
    assert parse_offsets_file("g,orders,0,5\nother,orders,0,6", "f", "g")["g"] == {P0: 5}


def test_the_offsets_csv_file_quotes_long_texts_like_kafkas_tool() -> None:
    name = "t" * 25
    assert format_offsets({"g": {TopicPartition(name, 0): 5}}, has_one_group=True) == [f'"{name}",0,5']
    assert format_offsets({"g": {TopicPartition(name[1:], 0): 5}}, has_one_group=True) == [f"{name[1:]},0,5"]


BAD = {
    "orders,0": "line 1: the line is not topic,partition,offset",
    "orders,0,1\norders,0,1,2,3": "line 2: the line is not",
    "orders,x,1": "line 1: partition and offset must be numbers",
    "orders,0,-1": "line 1: partition and offset must not be negative",
    "orders,2147483648,1": "line 1: partition and offset must not be negative, and a partition is at most 2147483647",
    "orders,0,1\n" + "x" * 200_000 + ",0,1": "line 2: the line is not CSV",
    "": "--from-file f is empty",
}


@pytest.mark.parametrize(("content", "complaint"), BAD.items(), ids=BAD)
def test_malformed_lines_of_an_offsets_csv_file_are_refused_with_a_reason(content: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse_offsets_file(content, "f", "g")
    with pytest.raises(UsageError, match="not group,topic,partition,offset"):
        parse_offsets_file("orders,0,1", "f", None)
