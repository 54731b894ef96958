"""The packets of multi and multiRead byte by byte; truncated and malformed replies are refused."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.zk.acl import Acl
from klamm.zk.errors import ZkCode
from klamm.zk.jute import MalformedPacket, Reader, Stat, buffer, text, texts
from klamm.zk.multi import multi, multi_children, multi_get
from klamm.zk.operations import Check, ChildrenResult, Create, Delete, GetResult, Op, Result, Set

STAT = Stat(*range(1, 12))
STAT_BYTES = struct.pack(">qqqqiiiqiiq", *STAT)
END = struct.pack(">ibi", -1, 1, -1)


def head(opcode: int, error: int = -1) -> bytes:
    return struct.pack(">ibi", opcode, 0, error)


def refused(code: int) -> bytes:
    return head(-1, code) + struct.pack(">i", code)


ACL_BYTES = struct.pack(">ii", 1, 31) + text("world") + text("anyone")
OPERATIONS: list[tuple[Op, bytes]] = [
    (Check("/a", 3), head(13) + text("/c/a") + struct.pack(">i", 3)),
    (Set("/b", b"xy", 4), head(5) + text("/c/b") + buffer(b"xy") + struct.pack(">i", 4)),
    (Set("/b", b""), head(5) + text("/c/b") + buffer(b"") + struct.pack(">i", -1)),
    (Set("/b", None), head(5) + text("/c/b") + b"\xff\xff\xff\xff" + struct.pack(">i", -1)),
    (Create("/ü", b"d"), head(15) + text("/c/ü") + buffer(b"d") + ACL_BYTES + struct.pack(">i", 0)),
    (Create("/e", None, ephemeral=True), head(15) + text("/c/e") + buffer(None) + ACL_BYTES + struct.pack(">i", 1)),
    (
        Create("/s-", b"", sequential=True, acl=[Acl(1, "digest", "u:p")]),
        head(15) + text("/c/s-") + buffer(b"") + struct.pack(">ii", 1, 1) + text("digest") + text("u:p")
        + struct.pack(">i", 2),
    ),
    (Create("/", b"", True, True), head(15) + text("/c") + buffer(b"") + ACL_BYTES + struct.pack(">i", 3)),
    (Delete("/d"), head(2) + text("/c/d") + struct.pack(">i", -1)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "expected"), OPERATIONS)
def test_each_operation_of_a_zookeeper_multi_is_encoded_as_zookeeper_expects(op: Op, expected: bytes) -> None:
    assert multi([op], "/c", "/").payload == struct.pack(">i", 14) + expected + END


def test_a_zookeeper_multi_keeps_the_order_of_its_operations() -> None:
    ops, expected = zip(*OPERATIONS, strict=True)

    assert multi(ops, "/c", "/").payload == struct.pack(">i", 14) + b"".join(expected) + END


ANSWERS = [
    (head(13), Result(ZkCode.OK)),
    (head(5) + STAT_BYTES, Result(ZkCode.OK, None, STAT)),
    (head(15) + text("/s-1") + STAT_BYTES, Result(ZkCode.OK, "/s-1", STAT)),
    (head(1) + text("/s-2"), Result(ZkCode.OK, "/s-2")),  # ZooKeeper 3.5
    (head(2), Result(ZkCode.OK)),
    (refused(0), Result(ZkCode.OK)),
    (refused(-103), Result(ZkCode.BAD_VERSION)),
    (refused(-2), Result(ZkCode.RUNTIME_INCONSISTENCY)),
    (refused(-4711), Result(ZkCode(-4711))),
]


def answers_to(count: int, packet: bytes) -> list[Result]:
    return multi([Check("/a", 0)] * count, "", "/").read(Reader(packet))


def test_results_of_every_operation_type_of_a_zookeeper_multi_are_decoded() -> None:
    packet = b"".join(raw for raw, _ in ANSWERS) + END

    results = answers_to(len(ANSWERS), packet)

    assert results == [result for _, result in ANSWERS]
    assert results[-1].code.name == "CODE_-4711"
    assert isinstance(results[1].stat, Stat)


@given(st.lists(st.sampled_from(ANSWERS + [ANSWERS[1]] * 20), max_size=12))
def test_mixed_and_repeated_results_of_a_zookeeper_multi_are_decoded(answers: list[tuple[bytes, Result]]) -> None:
    packet = b"".join(raw for raw, _ in answers) + END

    assert answers_to(len(answers), packet) == [result for _, result in answers]


@pytest.mark.parametrize("answers", [ANSWERS, [ANSWERS[0], *[ANSWERS[1]] * 3]])
def test_a_truncated_reply_to_a_zookeeper_multi_is_refused(answers: list[tuple[bytes, Result]]) -> None:
    packet = b"".join(raw for raw, _ in answers) + END
    for cut in range(len(packet)):
        with pytest.raises(MalformedPacket):
            answers_to(len(answers), packet[:cut])


WRONG_ANSWERS = {
    "too few": head(13) + END,
    "too many": head(13) * 3 + END,
    "unknown type": head(77) * 2 + END,
    "something after the end": head(13) * 2 + END + b"x",
    "no end": head(13) * 3,
}


@pytest.mark.parametrize("packet", WRONG_ANSWERS.values(), ids=WRONG_ANSWERS)
def test_a_malformed_reply_to_a_zookeeper_multi_is_refused(packet: bytes) -> None:
    with pytest.raises(MalformedPacket):
        answers_to(2, packet)


def test_a_zookeeper_multi_read_request_is_encoded_as_zookeeper_expects() -> None:
    expected = struct.pack(">i", 22) + head(4) + text("/c/a") + b"\0" + head(4) + text("/c") + b"\0" + END
    assert multi_get(["/a", "/"], "/c").payload == expected
    expected = struct.pack(">i", 22) + head(8) + text("/a") + b"\0" + head(8) + text("/") + b"\0" + END
    assert multi_children(["/a", "/"], "").payload == expected


GETS = [
    (head(4, 0) + buffer(b"data") + STAT_BYTES, (ZkCode.OK, b"data", STAT)),
    (head(4, 0) + buffer(b"") + STAT_BYTES, (ZkCode.OK, b"", STAT)),
    (head(4, 0) + buffer(None) + STAT_BYTES, (ZkCode.OK, None, STAT)),
    (refused(-101), (ZkCode.NO_NODE, None, None)),
]
PATHS = ["/a", "/b", "/c", "/d"]


def test_the_reply_to_a_multi_read_of_a_thousand_znodes_decodes_to_their_data() -> None:
    packet = b"".join(raw for raw, _ in GETS) + END

    results = multi_get(PATHS, "/x").read(Reader(packet))

    assert results == [GetResult(path, *expected) for path, (_, expected) in zip(PATHS, GETS, strict=True)]


def test_the_reply_to_a_multi_read_of_a_thousand_znodes_decodes_to_their_children() -> None:
    packet = head(8, 0) + texts(["x", "y"]) + refused(-101) + head(8, 0) + texts([]) + END

    assert multi_children(["/a", "/b", "/c"], "").read(Reader(packet)) == [
        ChildrenResult("/a", ZkCode.OK, ["x", "y"]),
        ChildrenResult("/b", ZkCode.NO_NODE, []),
        ChildrenResult("/c", ZkCode.OK, []),
    ]


def test_an_empty_multi_read_reply_means_that_the_zookeeper_server_lacks_multi_read() -> None:
    assert multi_get(["/a"], "").read(Reader(b"")) is None
    assert multi_children(["/a"], "").read(Reader(b"")) is None


CHILDREN = head(8, 0) + texts(["x", "y"]) + refused(-101) + END


@pytest.mark.parametrize(
    ("read", "packet"),
    [
        (multi_get(PATHS, "").read, b"".join(raw for raw, _ in GETS) + END),
        (multi_children(["/a", "/b"], "").read, CHILDREN),
    ],
)
def test_a_truncated_reply_to_a_zookeeper_multi_read_is_refused(read: Any, packet: bytes) -> None:
    for cut in range(1, len(packet)):
        with pytest.raises(MalformedPacket):
            read(Reader(packet[:cut]))


WRONG_READS = {
    "too few": refused(-101) + END,
    "too many": refused(-101) * 3 + END,
    "unknown type": head(9) + buffer(b"") + STAT_BYTES + refused(-101) + END,
    "negative size": head(4) + struct.pack(">i", -2) + STAT_BYTES + refused(-101) + END,
    "huge size": head(4) + struct.pack(">i", 1 << 30) + STAT_BYTES + refused(-101) + END,
}


@pytest.mark.parametrize("packet", WRONG_READS.values(), ids=WRONG_READS)
def test_a_malformed_reply_to_a_zookeeper_multi_read_is_refused(packet: bytes) -> None:
    for build in (multi_get, multi_children):
        with pytest.raises(MalformedPacket):
            build(["/a", "/b"], "").read(Reader(packet))


@given(st.lists(st.one_of(st.none(), st.binary(max_size=200)), min_size=1, max_size=30))
def test_any_znode_data_in_a_multi_read_decodes_unchanged(contents: list[bytes | None]) -> None:
    packet = b"".join(head(4, 0) + buffer(data) + STAT_BYTES for data in contents) + END

    results = multi_get([f"/{i}" for i in range(len(contents))], "").read(Reader(packet))

    assert results is not None
    assert [r.data for r in results] == contents


@given(st.binary(min_size=1, max_size=300))
def test_random_bytes_as_reply_to_a_zookeeper_multi_raise_only_protocol_errors(packet: bytes) -> None:
    for read in (multi_get(PATHS, "").read, multi_children(PATHS, "").read, multi([Check("/", 0)], "", "/").read):
        with pytest.raises(MalformedPacket):
            read(Reader(packet))
