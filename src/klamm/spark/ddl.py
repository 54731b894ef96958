"""Checks a schema in DDL, such as `id BIGINT, user STRING`, before Spark parses it.

Spark's parser sees the columns of the source around it, and names neither the option nor the field. What this check
does not know is left to Spark.
"""

import difflib
import re
from collections.abc import Sequence
from typing import Final

_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|(.))", re.DOTALL)
_SIMPLE: Final = (
    "BIGINT", "BINARY", "BOOLEAN", "BYTE", "CHAR", "CHARACTER", "DATE", "DEC", "DECIMAL", "DOUBLE", "FLOAT", "INT",
    "INTEGER", "LONG", "NUMERIC", "REAL", "SHORT", "SMALLINT", "STRING", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ",
    "TIMESTAMP_NTZ", "TINYINT", "VARCHAR", "VARIANT", "VOID",
)  # fmt: skip
_NESTED: Final = ("ARRAY", "MAP", "STRUCT")
_OTHERS: Final = ("GEOGRAPHY", "GEOMETRY", "INTERVAL")
"""Types whose parameters are not checked here."""


class _Unknown(Exception):
    """The rest of the text is for Spark to judge."""


def check_fields(text: str) -> None:
    """Check the fields of a schema. Raises ValueError, which says what to correct."""
    tokens = [next(filter(None, found)) for found in _TOKEN.findall(text) if any(found)]
    try:
        left = _fields(tokens)
    except _Unknown:
        return
    if left:
        raise ValueError(f"{left[0]!r} is where a comma or the end is expected; correct it")


def _fields(tokens: Sequence[str]) -> Sequence[str]:
    """Check a list of fields; returns the tokens behind it. Raises ValueError, _Unknown."""
    while True:
        if not tokens or not re.match(r"[`\w]", tokens[0]):
            raise ValueError(f"a name is missing {_place(tokens)}; give NAME TYPE, for example id BIGINT")
        name, tokens = tokens[0], tokens[1:]
        if tokens and tokens[0] == ":":
            tokens = tokens[1:]
        tokens = _type(name, tokens)
        if [t.upper() for t in tokens[:2]] == ["NOT", "NULL"]:
            tokens = tokens[2:]
        if tokens and tokens[0] not in (",", ">", ")"):
            raise _Unknown
        if not tokens or tokens[0] != ",":
            return tokens
        tokens = tokens[1:]


def _type(name: str, tokens: Sequence[str]) -> Sequence[str]:
    """Check the type of a field; returns the tokens behind it. Raises ValueError, _Unknown."""
    if not tokens or not tokens[0].isidentifier():
        raise ValueError(f"the field {name} has no type; give NAME TYPE, for example {name} STRING")
    kind, tokens = tokens[0].upper(), tokens[1:]
    if kind in _OTHERS:
        raise _Unknown
    if kind not in (*_SIMPLE, *_NESTED):
        near = difflib.get_close_matches(kind, (*_SIMPLE, *_NESTED), n=1)
        hint = f"did you mean {near[0]}?" if near else "give a type of Spark SQL, for example BIGINT"
        raise ValueError(f"the field {name} has the type {kind}, which does not exist; {hint}")
    if kind in _NESTED:
        return _parameters(name, kind, tokens)
    if tokens and tokens[0] == "(":
        if ")" not in tokens:
            raise ValueError(f"the field {name} has a ( without ); close it")
        return tokens[tokens.index(")") + 1 :]
    return tokens


def _parameters(name: str, kind: str, tokens: Sequence[str]) -> Sequence[str]:
    """Check what is between < and > of a nested type; returns the tokens behind it. Raises ValueError, _Unknown."""
    if not tokens or tokens[0] != "<":
        raise ValueError(f"the field {name} is {kind} without <...>; give for example ARRAY<STRING> or STRUCT<a: INT>")
    tokens = tokens[1:]
    if kind == "STRUCT":
        tokens = _fields(tokens)
    else:
        tokens = _type(name, tokens)
        if kind == "MAP":
            if not tokens or tokens[0] != ",":
                raise ValueError(f"the field {name} is a MAP of one type; give MAP<STRING, TYPE>")
            tokens = _type(name, tokens[1:])
    if not tokens or tokens[0] != ">":
        raise ValueError(f"the field {name} has a < without >; close it")
    return tokens[1:]


def _place(tokens: Sequence[str]) -> str:
    """Where a text ends too early, or goes wrong."""
    return f"before {tokens[0]!r}" if tokens else "at the end"
