"""As java.util.Properties reads it."""

import pytest

from klamm.config.properties import BadProperties, parse_properties

CASES = {
    "plain": (b"a=b", [("a", "b")]),
    "colon": (b"a:b", [("a", "b")]),
    "blank between": (b"a b c", [("a", "b c")]),
    "blanks around": (b"  a \t= b ", [("a", "b ")]),
    "only the first separator counts": (b"a = = b", [("a", "= b")]),
    "no value": (b"a", [("a", "")]),
    "comments": (b"# x=y\n ! z=1\na=b#c", [("a", "b#c")]),
    "continued": (b"a=one,\\\n   two", [("a", "one,two")]),
    "an even number of backslashes ends the line": (b"a=one\\\\\nb=two", [("a", "one\\"), ("b", "two")]),
    "a comment sign within a continuation is text": (b"a=one\\\n#two", [("a", "one#two")]),
    "windows lines": (b"a=1\r\nb=2\r\n", [("a", "1"), ("b", "2")]),
    "escaped separators": (b"a\\=b\\ c=d", [("a=b c", "d")]),
    "escapes": (b"a=\\t\\u00e9\\q", [("a", "\té" + "q")]),
    "latin-1": (b"a=\xe9", [("a", "é")]),
    "repeated": (b"a=1\na=2", [("a", "1"), ("a", "2")]),
    "continued to the end": (b"a=1\\", [("a", "1")]),
}


@pytest.mark.parametrize(("content", "expected"), CASES.values(), ids=CASES)
def test_properties_files_are_parsed_as_by_java(content: bytes, expected: list[tuple[str, str]]) -> None:
    assert [(p.key, p.value) for p in parse_properties(content)] == expected


def test_a_property_that_spans_several_lines_has_the_line_number_of_its_first_line() -> None:
    assert [p.line for p in parse_properties(b"# top\n\na=1\\\n  2\nb=3")] == [3, 5]


def test_an_invalid_escape_in_a_properties_file_is_refused_with_its_line_number() -> None:
    with pytest.raises(BadProperties) as refusal:
        parse_properties(b"a=1\nb=\\u12x4")

    assert str(refusal.value).startswith("line 2: ")
