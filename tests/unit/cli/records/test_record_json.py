"""Records as JSON lines, there and back."""

import json

import pytest

from klamm.cli.records.record_json import decode_record, encode_record
from klamm.model.errors import UsageError
from klamm.wire.records import NewRecord, Record

BINARY = b"\xff\x00"


def test_a_record_encoded_as_json_line_is_decoded_to_the_same_record() -> None:
    headers = (("a", b"1"), ("a", BINARY), ("null", None))
    line = encode_record("orders", 3, Record(7, 1_234, None, BINARY, headers), "create")

    assert json.loads(line) == {
        "topic": "orders", "partition": 3, "offset": 7, "tstype": "create", "ts": 1_234, "key": None,
        "headers": ["a", "1", "a", {"base64": "/wA="}, "null", None], "payload": {"base64": "/wA="},
    }  # fmt: skip
    given = decode_record(line)
    assert given[:3] == ("orders", 3, 1_234)
    assert given.record == NewRecord(BINARY, None, headers=headers)


def test_a_json_record_line_requires_only_the_field_payload() -> None:
    assert decode_record(b'{"payload": null}') == (None, None, None, NewRecord(None, None, headers=()))
    assert decode_record(b'{"payload": "", "ts": -1}').timestamp is None
    assert decode_record(b'{"payload": "\\u00e4", "headers": {"n": "v"}}').record == NewRecord(
        "ä".encode(), headers=(("n", b"v"),)
    )


BAD = {
    b"": "not a record in JSON",
    b"[]": "not a record in JSON: Expected `object`",
    b"{}": "missing required field `payload`",
    b'{"payload": 1}': r"at `\$.payload`",
    b'{"payload": "a", "key": {"base64": "?"}}': r"at `\$.key.base64`",
    b'{"playload": "a"}': "unknown field `playload`",
    b'{"payload": "a", "ts": -2}': "ts -2 is not a timestamp",
    b'{"payload": "a", "ts": 9223372036854775808}': "ts 9223372036854775808 is not a timestamp",
    b'{"payload": "a", "headers": ["n"]}': "does not consist of pairs",
    b'{"payload": "a", "headers": [null, "v"]}': "does not consist of pairs",
    b'{"payload": "\\ud800"}': "JSON|surrogate",
    b'{"payload": "\xff"}': "not a record in JSON",
}


@pytest.mark.parametrize(("line", "complaint"), BAD.items(), ids=map(str, range(len(BAD))))
def test_a_malformed_json_record_line_is_refused_with_the_name_of_its_bad_field(line: bytes, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        decode_record(line)
