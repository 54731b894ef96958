"""The session state machine with bytes that are split anywhere, malformed or random."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.zk.session_packets import (
    DATA,
    STAT,
    STAT_BYTES,
    answer,
    connect,
    connected,
    new_session,
    notification,
    packet,
    receive,
    reply,
    sent,
    submitted,
)

from klamm.zk import requests
from klamm.zk.errors import ZkCode
from klamm.zk.jute import buffer
from klamm.zk.requests import Request
from klamm.zk.states import Phase, SessionState
from klamm.zk.watches import EventType, WatchEvent

CONVERSATION = (
    answer() + notification(3, "/w") + reply(-2) + reply(1, DATA) + notification(2, "/v") + reply(2, error=-101)
)


FOLLOWS = [SessionState.CONNECTED, WatchEvent(EventType.DATA_CHANGED, "/w"), 1, WatchEvent(EventType.DELETED, "/v"), 2]


def converse(pieces: list[bytes]) -> list[Any]:
    """The outcomes of a conversation with a server, received in these pieces."""
    session = new_session()
    session.tick(0.0)
    session.connection_made(1, 0.0)
    asked = [requests.get("/a", False), requests.get("/b", False)]
    submitted(session, *asked)
    outcomes: list[Any] = []
    for piece in pieces:
        receive(session, piece)
        session.take_outgoing(0.0)
        outcomes += session.take_outcomes()
    return [o.xid if isinstance(o, Request) else o for o in outcomes]


@pytest.mark.parametrize("cut", range(len(answer()), len(CONVERSATION)))
def test_zookeeper_replies_split_at_any_byte_decode_to_the_same_replies(cut: int) -> None:
    assert converse([CONVERSATION[: len(answer())], CONVERSATION[len(answer()) : cut], CONVERSATION[cut:]]) == FOLLOWS


@pytest.mark.parametrize("cut", range(len(answer())))
def test_a_zookeeper_connect_response_split_at_any_byte_is_decoded(cut: int) -> None:
    first = answer()
    assert converse([first[:cut], first[cut:], CONVERSATION[len(first) :]]) == FOLLOWS


def test_zookeeper_replies_received_byte_by_byte_decode_to_the_same_replies() -> None:
    assert converse([CONVERSATION[i : i + 1] for i in range(len(CONVERSATION))]) == FOLLOWS


MALFORMED = {
    "xid nobody asked": (reply(9, DATA), "a reply of ZooKeeper with xid 9, but xid 1 was expected"),
    "second before first": (reply(2, DATA), "a reply of ZooKeeper with xid 2, but xid 1 was expected"),
    "auth nobody sent": (reply(-4), "no credentials were sent"),
    "short header": (packet(b"123"), "a reply of ZooKeeper has 3 bytes"),
    "empty": (packet(b""), "a reply of ZooKeeper has 0 bytes"),
    "negative length": (struct.pack(">i", -5), "a packet from ZooKeeper announces -5 bytes"),
    "absurd length": (b"\x7fHTTP", "a packet from ZooKeeper announces 2135446612 bytes"),
    "long packet that is no reply": (struct.pack(">iiqi", 5 << 20, 77, 1, 0), "a reply of ZooKeeper with xid 77"),
    "long notification": (struct.pack(">iiqi", 5 << 20, -1, 1, 0), "a reply of ZooKeeper with xid -1"),
    "unknown event": (notification(9, "/a"), "unknown type 9"),
    "notification cut short": (reply(-1, struct.pack(">ii", 3, 3)), "a field of 4 bytes"),
    "path is not text": (reply(-1, struct.pack(">iii", 3, 3, 1) + b"\xff"), "not UTF-8"),
    "reply with less than promised": (reply(1, buffer(b"data") + STAT_BYTES[:-1]), "a field of 68 bytes"),
}


@pytest.mark.parametrize(("data", "why"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_zookeeper_packet_closes_the_connection_but_keeps_the_session(data: bytes, why: str) -> None:
    session = connected()
    first, second = requests.get("/a", False), requests.get("/b", False)
    submitted(session, first, second)

    receive(session, data + reply(1, DATA) + reply(2, DATA))

    assert session.phase is Phase.WAITING
    assert why in session.last_failure
    assert first.code in (None, ZkCode.MALFORMED_REPLY)
    assert second.code is None
    connect(session, 1.0)
    assert len(sent(session)) == session.unanswered


@pytest.mark.parametrize(
    "data",
    [packet(b""), packet(b"1234567"), packet(bytes(5000)), struct.pack(">i", -1), b"HTTP/1.1 400 Bad Request\r\n\r\n"],
)
def test_a_malformed_zookeeper_connect_response_closes_the_connection(data: bytes) -> None:
    session = new_session()
    session.tick(0.0)
    session.connection_made(1, 0.0)
    receive(session, data)

    assert (session.phase, session.session_id) == (Phase.WAITING, 0)
    assert "malformed packet" in session.last_failure


def test_a_zookeeper_reply_beyond_the_size_limit_fails_only_its_request() -> None:
    session = connected(max_packet_bytes=1000)
    large, small = requests.get("/large", False), requests.get("/small", False)
    xids = submitted(session, large, small)
    receive(session, reply(xids[0], bytes(5000))[:500])
    assert (large.code, small.code) == (ZkCode.REPLY_TOO_LARGE, None)

    receive(session, bytes(4000))
    receive(session, bytes(len(reply(xids[0], bytes(5000))) - 4500) + reply(xids[1], DATA))

    assert small.value == (b"data", STAT)
    assert session.phase is Phase.CONNECTED


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_random_received_bytes_keep_the_zookeeper_session_state_consistent(pieces: list[bytes]) -> None:
    session = connected()
    request = requests.get("/a", True)
    submitted(session, request)
    for piece in pieces:
        receive(session, piece)

    assert session.phase in (Phase.CONNECTED, Phase.WAITING, Phase.EXPIRED, Phase.AUTH_FAILED)
    assert session.unanswered <= 1


@given(st.data())
def test_a_flipped_bit_in_a_zookeeper_reply_never_raises_an_exception(data: st.DataObject) -> None:
    stream = bytearray(CONVERSATION)
    at = data.draw(st.integers(0, len(stream) * 8 - 1))
    stream[at // 8] ^= 1 << at % 8

    converse([bytes(stream)])
