"""Watches and credentials that a session presents again on each connection."""

import struct
from typing import Any

from tests.unit.zk.session_packets import (
    DATA,
    STAT_BYTES,
    connect,
    connected,
    new_session,
    notification,
    receive,
    reply,
    sent,
    submitted,
)

from klamm.zk import requests
from klamm.zk.errors import ZkCode
from klamm.zk.jute import text
from klamm.zk.states import Phase, SessionState
from klamm.zk.watches import EventType, WatchEvent


def test_the_client_registers_watches_from_responses_and_drops_watches_that_fired() -> None:
    session = connected()
    asked: list[requests.Request[Any]] = [
        requests.get("/data", True),
        requests.exists("/there", True),
        requests.exists("/absent", True),
        requests.children("/child", True),
        requests.get("/none", True),
        requests.get("/unwatched", False),
    ]
    xids = submitted(session, *asked)
    children = struct.pack(">i", 0) + STAT_BYTES
    bodies = [(DATA, 0), (STAT_BYTES, 0), (b"", -101), (children, 0), (b"", -101), (DATA, 0)]
    receive(session, b"".join(reply(x, body, error) for x, (body, error) in zip(xids, bodies, strict=True)))
    assert len(session.watches) == 4
    session.take_outcomes()

    receive(session, notification(3, "/data") + notification(4, "/child") + notification(1, "/absent"))

    assert session.take_outcomes() == [
        WatchEvent(EventType.DATA_CHANGED, "/data"),
        WatchEvent(EventType.CHILDREN_CHANGED, "/child"),
        WatchEvent(EventType.CREATED, "/absent"),
    ]
    session.connection_lost(session.attempt, "", 3.0)
    connect(session, 3.0)
    ((xid, opcode, body),) = sent(session)
    assert (xid, opcode) == (-8, 101)
    assert body == struct.pack(">qi", 1, 1) + text("/there") + struct.pack(">ii", 0, 0)


def test_set_watches_is_sent_once_per_zookeeper_reconnect_and_before_requests() -> None:
    session = connected()
    request = requests.get("/a", True)
    (xid,) = submitted(session, request)
    receive(session, reply(xid, DATA))
    waiting = requests.get("/b", False)
    session.submit(waiting)
    for now in (3.0, 6.0):
        session.connection_lost(session.attempt, "", now)
        connect(session, now + 2)
        assert [(xid if xid < 0 else 0, opcode) for xid, opcode, _ in sent(session)] == [(-8, 101), (0, 4)]

    receive(session, reply(-8) + reply(waiting.xid, DATA))
    assert waiting.code is ZkCode.OK
    session.connection_lost(session.attempt, "", 20.0)
    session.abort()
    assert all(outcome is not None for outcome in session.take_outcomes())


def test_ending_a_zookeeper_session_reports_no_result_for_an_unanswered_set_watches() -> None:
    session = connected()
    (xid,) = submitted(session, requests.get("/a", True))
    receive(session, reply(xid, DATA))
    session.connection_lost(session.attempt, "", 3.0)
    connect(session, 3.0)
    sent(session)
    session.take_outcomes()

    session.abort()

    assert session.take_outcomes() == [SessionState.CLOSED]


def test_a_refused_set_watches_closes_the_zookeeper_connection() -> None:
    session = connected()
    (xid,) = submitted(session, requests.get("/a", True))
    receive(session, reply(xid, DATA))
    session.connection_lost(session.attempt, "", 3.0)
    connect(session, 3.0)
    sent(session)

    receive(session, reply(-8, error=-6))

    assert (session.phase, session.last_failure) == (
        Phase.WAITING,
        "b:2: malformed packet: the server refused SetWatches after the reconnect: UNIMPLEMENTED",
    )


def test_many_zookeeper_watches_are_restored_in_several_packets_with_the_same_zxid() -> None:
    session = connected(max_packet_bytes=2000)
    asked = [requests.get(f"/{i:050}", True) for i in range(100)]
    xids = submitted(session, *asked)
    receive(session, b"".join(reply(x, DATA, zxid=x) for x in xids))
    session.connection_lost(session.attempt, "", 3.0)
    connect(session, 3.0)

    packets = sent(session)

    assert len(packets) == 6
    assert all(len(body) < 1100 and body[:8] == struct.pack(">q", 100) for _, _, body in packets)
    assert sum(struct.unpack_from(">i", body, 8)[0] for _, _, body in packets) == 100


def test_zookeeper_credentials_are_sent_first_on_every_connection_and_confirmed_once() -> None:
    session = new_session(auth=[("digest", b"a:a")])
    connect(session, 0.0)
    assert [(xid, opcode) for xid, opcode, _ in sent(session)] == [(-4, 100)]
    added = requests.auth("digest", b"b:b")
    session.add_auth(added)
    assert [(xid, opcode) for xid, opcode, _ in sent(session)] == [(-4, 100)]
    receive(session, reply(-4))
    assert added.code is None
    session.connection_lost(session.attempt, "", 3.0)
    session.submit(requests.get("/a", False))
    connect(session, 3.0)
    assert [xid for xid, _, _ in sent(session)] == [-4, -4, 1]
    receive(session, reply(-4) + reply(-4))

    assert added.code is ZkCode.OK
    assert session.take_outcomes().count(added) == 1
    session.connection_lost(session.attempt, "", 9.0)
    connect(session, 9.0)
    sent(session)
    receive(session, reply(-4) + reply(-4))
    assert session.take_outcomes() == [SessionState.DISCONNECTED, SessionState.CONNECTED]


def test_adding_zookeeper_credentials_completes_once_even_if_the_first_response_was_lost() -> None:
    session = connected()
    added = requests.auth("digest", b"b:b")
    session.add_auth(added)
    sent(session)
    session.connection_lost(session.attempt, "", 3.0)
    connect(session, 3.0)
    sent(session)

    receive(session, reply(-4))
    assert added.code is ZkCode.OK
    receive(session, reply(-4))
    assert "no credentials were sent" in session.last_failure


def test_zookeeper_credentials_added_without_a_connection_wait_for_the_connection() -> None:
    session = new_session()
    added = requests.auth("digest", b"b:b")
    session.add_auth(added)
    connect(session, 0.0)

    assert [xid for xid, _, _ in sent(session)] == [-4]


def test_zookeeper_credentials_that_the_server_refuses_end_the_session() -> None:
    session = connected()
    waiting, added = requests.get("/a", False), requests.auth("digest", b"b:b")
    submitted(session, waiting)
    session.add_auth(added)
    sent(session)

    receive(session, reply(-4, error=-115))

    assert added.code is waiting.code is ZkCode.AUTH_FAILED
    assert session.take_outcomes()[-1] is SessionState.AUTH_FAILED
