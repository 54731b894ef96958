"""The tables' notation: what it means, and what it refuses."""

import pytest

from klamm.wire.notation import parse, parse_versions
from klamm.wire.schema import NEVER, Kind, Struct, Versions

EXAMPLE = """
api Lend 7 0-5 flexible 4+
  request
    name str?2+, count i32 3+ =-1 ~, wanted bool =true
    books [Book] 1-3
      title str
      pages [i16]? 2
    deposit Deposit? 4+ =null tag1 ~
      amount f64
    spare [Book] 5
    content records?
  response
    error_code i16
"""


def test_klamms_text_table_of_kafka_messages_is_parsed_into_message_schemas() -> None:
    request, response = parse(EXAMPLE)

    assert (request.name, request.api_key, request.is_request) == ("LendRequest", 7, True)
    assert (response.name, response.is_request) == ("LendResponse", False)
    assert request.versions == Versions(0, 5)
    assert [request.is_flexible(v) for v in range(6)] == [False] * 4 + [True] * 2
    name, count, wanted, books, deposit, spare, content = request.body.fields
    assert (name.element, name.versions, name.nullable_from) == (Kind.STR, Versions(0, 5), 2)
    assert (count.versions, count.default, count.ignorable) == (Versions(3, 5), -1, True)
    assert (wanted.default, wanted.nullable_from, wanted.ignorable) == (True, NEVER, False)
    assert (books.is_array, books.versions) == (True, Versions(1, 3))
    assert (deposit.tag, deposit.null_default, deposit.is_array) == (1, True, False)
    assert (spare.element, spare.versions) == (books.element, Versions(5, 5))
    assert content.null_default
    assert isinstance(books.element, Struct)
    assert [f.name for f in books.element.fields] == ["title", "pages"]
    assert [s.name for s in request.structs()] == ["Book", "Deposit", "LendRequest"]


def test_a_message_schema_lists_the_fields_of_each_version() -> None:
    request, _ = parse(EXAMPLE)

    assert [f.name for f in request.body.in_order(4)] == ["name", "count", "wanted", "content"]
    assert [(t, f.name) for t, f in request.body.tagged(4)] == [(1, "deposit")]
    assert [f.name for f in request.body.absent(4)] == ["books", "spare"]


def test_an_api_without_the_flexible_keyword_in_the_message_table_is_never_flexible() -> None:
    request, _ = parse("api Old 1 0\n  request\n    a i8\n  response\n    b i8")

    assert request.first_flexible == NEVER
    assert request.versions == Versions(0, 0)


WRONG = {
    "no api": ("request\n  a i8", "is not `api"),
    "no response": ("api A 1 0\n  request\n    a i8", "A: .* where `response` must follow"),
    "no request": ("api A 1 0\n  response\n    a i8", "A: .* where `request` must follow"),
    "fields below a number": ("api A 1 0\n  request\n    a i8\n      b i8\n  response", "its type is not a new struct"),
    "a struct told twice": (
        "api A 1 0\n  request\n    a [S]\n      b i8\n    c [S]\n      d i8\n  response",
        "its type is not a new struct",
    ),
    "a type": ("api A 1 0\n  request\n    a [i8}\n  response", "the type in 'a \\[i8}'"),
    "versions": ("api A 1 0-x\n  request\n    a i8\n  response", "'0-x' is not a range"),
}


@pytest.mark.parametrize(("table", "complaint"), WRONG.values(), ids=WRONG)
def test_a_malformed_message_table_raises_value_error_with_the_line_number(table: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        list(parse(table))


@pytest.mark.parametrize(("text", "versions"), [("3", Versions(3, 3)), ("3+", Versions(3, 9)), ("0-2", Versions(0, 2))])
def test_version_ranges_in_the_message_table_are_parsed(text: str, versions: Versions) -> None:
    assert parse_versions(text, 9) == versions


def test_a_version_range_is_printed_in_the_notation_of_the_message_table() -> None:
    assert (str(Versions(0, 3)), str(Versions(2, 2))) == ("0-3", "2")
    assert 2 in Versions(0, 3)
    assert 4 not in Versions(0, 3)
