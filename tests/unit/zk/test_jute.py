"""Encoding and decoding of Jute fields."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.zk import jute
from klamm.zk.acl import OPEN_ACL, Acl
from klamm.zk.errors import BadVersion, NoNode, ZkCode, ZkError, error_of
from klamm.zk.jute import MalformedPacket, Reader


@given(st.text())
def test_an_encoded_jute_string_decodes_to_itself(value: str) -> None:
    try:
        encoded = jute.text(value)
    except UnicodeEncodeError:
        return
    assert Reader(encoded).text() == value


@given(st.lists(st.text(st.characters(codec="utf-8"))))
def test_an_encoded_jute_string_vector_decodes_to_itself(values: list[str]) -> None:
    assert Reader(jute.texts(values)).texts() == values


@pytest.mark.parametrize("value", [None, b"", b"abc"])
def test_a_null_jute_buffer_and_an_empty_buffer_decode_differently(value: bytes | None) -> None:
    assert Reader(jute.buffer(value)).buffer() == value


def test_null_jute_vectors_and_strings_decode_as_empty() -> None:
    null = b"\xff\xff\xff\xff"

    assert (Reader(null).texts(), Reader(null).acls(), Reader(null).text()) == ([], [], "")


def test_encoded_zookeeper_acls_decode_to_themselves() -> None:
    acl = [*OPEN_ACL, Acl(5, "digest", "user:hash")]

    assert Reader(jute.acls(acl)).acls() == acl


LIES = {
    "size beyond the packet": (struct.pack(">i", 5) + b"abcd", Reader.buffer),
    "negative size": (struct.pack(">i", -2), Reader.buffer),
    "not UTF-8": (struct.pack(">i", 1) + b"\xff", Reader.text),
    "vector of a billion": (struct.pack(">i", 1 << 30), Reader.texts),
    "negative vector": (struct.pack(">i", -7), Reader.texts),
    "vector of ACLs": (struct.pack(">i", 2) + bytes(12), Reader.acls),
    "short int": (b"abc", Reader.int32),
    "short long": (b"abcdefg", Reader.int64),
    "no boolean": (b"", Reader.boolean),
    "short stat": (bytes(67), Reader.stat),
}


@pytest.mark.parametrize(("packet", "read"), LIES.values(), ids=LIES)
def test_a_jute_length_beyond_the_end_of_the_packet_is_refused(packet: bytes, read: Callable[[Reader], object]) -> None:
    with pytest.raises(MalformedPacket):
        read(Reader(packet))


def test_the_message_of_a_zookeeper_error_names_its_error_code() -> None:
    assert isinstance(error_of(ZkCode.NO_NODE, "/a"), NoNode)
    assert str(error_of(ZkCode.BAD_VERSION, "/a")) == "ZooKeeper answered BAD_VERSION for /a"
    assert str(BadVersion("")) == "ZooKeeper answered BAD_VERSION"
    unnamed = error_of(ZkCode(-999), "/a")
    assert (type(unnamed), unnamed.code, str(unnamed)) == (ZkError, -999, "ZooKeeper answered CODE_-999 for /a")
    with pytest.raises(ValueError):
        ZkCode("NO_NODE")  # type: ignore[arg-type]
