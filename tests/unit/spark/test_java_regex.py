"""Java's regular expressions mean the same here; the client tests compare them with java.util.regex.Pattern."""

import re

import pytest

from klamm.spark.java_regex import to_python

NAMES = ("orders", "orders.eu", "Orders-2", "pay_ments", "x", "9", "a.b", "__consumer_offsets")
PATTERNS = {
    "plain": ("orders", ("orders", "orders.eu")),
    "anchors": (r"^orders$", ("orders",)),
    "end of input": (r"\Aorders\z", ("orders",)),
    "posix class": (r"^\p{Upper}\p{Alpha}+-\p{Digit}$", ("Orders-2",)),
    "negated property": (r"^\P{Alpha}$", ("9",)),
    "one-letter property": (r"^\pL$", ("x",)),
    "unicode properties": (r"^\p{IsAlphabetic}\p{Po}\p{javaLowerCase}$", ("a.b",)),
    "intersection": (r"^[a-z&&[^o-z]]", ("a.b",)),
    "subtraction of one": (r"^[\w&&[^_o]]", ("Orders-2", "pay_ments", "x", "9", "a.b")),
    "nested union": (r"^[x[0-9]]$", ("x", "9")),
    "quoted": (r"\Qa.b\E", ("a.b",)),
    "quoted to the end": (r"\Qorders.", ("orders.eu",)),
    "quoted in a class": (r"[\Q.-\E]", ("orders.eu", "Orders-2", "a.b")),
    "named group": (r"(?<first>_)\k<first>", ("__consumer_offsets",)),
    "look behind": (r"(?<=orders)\.", ("orders.eu",)),
    "possessive": (r"^o++rders$", ("orders",)),
    "case": (r"(?i)^ORDERS", ("orders", "orders.eu", "Orders-2")),
    "hex": (r"^\x61\u002Eb$", ("a.b",)),
    "hyphen last": (r"[2-]$", ("Orders-2",)),
    "bracket first": (r"[]x]$", ("x",)),
    "negated class": (r"^[^a-zA-Z_]", ("9",)),
    "white space": (r"\s", ()),
    "escaped dot": (r"\.", ("orders.eu", "a.b")),
}


@pytest.mark.parametrize(("pattern", "expected"), PATTERNS.values(), ids=PATTERNS)
def test_a_java_regular_expression_translated_to_python_matches_the_same_topics(
    pattern: str, expected: tuple[str, ...]
) -> None:
    assert tuple(n for n in NAMES if re.search(to_python(pattern), n)) == expected


WRONG = {
    "unclosed class": ("[a-z", "[ without ]"),
    "unclosed nested class": ("[a-z[0-9]", "[ without ]"),
    "range backwards": ("[z-a]", "the range z-a"),
    "range to no character": (r"[a-\s]", "an escape that is no single character"),
    "range to several characters": (r"[.-\d]", "an escape that is no single character"),
    "unknown property": (r"\p{Klingon}", "the property Klingon"),
    "unclosed property": (r"\p{Alpha", "lacks } after position 3"),
    "lonely backslash": ("a\\", "ends with a backslash"),
    "unknown escape": (r"\j", r"has \j, which klamm does not translate"),
}


@pytest.mark.parametrize(("pattern", "expected"), WRONG.values(), ids=WRONG)
def test_malformed_or_untranslatable_java_regular_expressions_are_refused_with_the_reason(
    pattern: str, expected: str
) -> None:
    with pytest.raises(ValueError) as caught:
        to_python(pattern)

    assert expected in str(caught.value)
