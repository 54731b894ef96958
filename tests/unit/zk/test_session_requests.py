"""Requests of a session: pipelined, sent again after a loss, refused, closed."""

import pytest
from tests.unit.zk.session_packets import (
    DATA,
    STAT,
    answer,
    connect,
    connected,
    new_session,
    receive,
    reply,
    sent,
    submitted,
)

from klamm.zk import requests
from klamm.zk.errors import ZkCode
from klamm.zk.operations import Create
from klamm.zk.states import Phase, SessionState


def test_zookeeper_requests_are_pipelined_up_to_a_limit_and_answered_in_order() -> None:
    session = connected(max_in_flight=2)
    asked = [requests.get(f"/{i}", False) for i in range(3)]
    for request in asked:
        session.submit(request)
    assert [(xid, opcode) for xid, opcode, _ in sent(session)] == [(1, 4), (2, 4)]
    assert sent(session) == []
    assert session.unanswered == 3

    receive(session, reply(1, DATA) + reply(2, error=-101))

    assert session.take_outcomes() == asked[:2]
    assert asked[0].value == (b"data", STAT)
    assert asked[1].code is ZkCode.NO_NODE
    assert [xid for xid, _, _ in sent(session)] == [3]


def test_zookeeper_requests_in_flight_are_resent_before_newer_requests_after_a_reconnect() -> None:
    session = connected(max_in_flight=2)
    asked = [requests.get(f"/{i}", False) for i in range(4)]
    submitted(session, *asked[:3])
    session.connection_lost(session.attempt, "", 1.0)
    session.submit(asked[3])
    asked[1].abandoned = True
    connect(session, 2.0)

    assert [body[4:-1] for _, _, body in sent(session)] == [b"/0", b"/2"]
    assert session.take_outcomes() == [SessionState.DISCONNECTED, SessionState.CONNECTED, asked[1]]


def test_zookeeper_requests_are_written_in_chunks_of_about_one_megabyte() -> None:
    session = connected()
    for i in range(10):
        session.submit(requests.create(Create(f"/{i}", bytes(400_000))))

    assert [len(sent(session)) for _ in range(5)] == [3, 3, 3, 1, 0]


def test_zookeeper_request_xids_restart_before_they_overflow() -> None:
    session = connected()
    session._xid = 0x7FFFFFFF - 1

    assert submitted(session, requests.get("/a", False), requests.get("/a", False)) == [0x7FFFFFFF, 1]


def test_a_zookeeper_request_over_the_size_limit_is_refused_without_sending() -> None:
    session = connected(max_packet_bytes=1000)
    fits, too_long = (requests.create(Create("/a", bytes(n))) for n in (900, 1000))
    session.submit(fits)
    session.submit(too_long)

    assert too_long.code is ZkCode.REQUEST_TOO_LARGE
    assert len(sent(session)) == 1


def test_a_zookeeper_request_on_which_servers_keep_disconnecting_fails() -> None:
    session = connected()
    large, small = requests.create(Create("/a", bytes(2 << 20))), requests.get("/b", False)
    submitted(session, large, small)
    for _ in range(3):
        assert large.code is None
        session.connection_lost(session.attempt, "", 1.0)
        connect(session, 9.0)
        sent(session)

    assert (large.code, small.code) == (ZkCode.REQUEST_TOO_LARGE, None)
    assert session.unanswered == 1


def test_the_zookeeper_read_timeout_does_not_disconnect_during_a_large_request() -> None:
    session = connected()
    large = requests.create(Create("/a", bytes(2 << 20)))
    submitted(session, large)
    for i in range(1, 6):
        session.tick(100.0 * i)
        connect(session, 100.0 * i + 50)
        sent(session, 100.0 * i + 50)

    assert large.code is None


def test_close_session_is_sent_after_all_submitted_zookeeper_requests() -> None:
    session = connected()
    request = requests.get("/a", False)
    session.submit(request)
    session.close()
    session.close()
    refused, refused_auth = requests.get("/b", False), requests.auth("digest", b"")
    session.submit(refused)
    session.add_auth(refused_auth)

    assert [(xid, opcode) for xid, opcode, _ in sent(session)] == [(1, 4), (2, -11)]
    assert refused.code is refused_auth.code is ZkCode.CLOSED
    receive(session, reply(1, DATA) + reply(2))
    assert (request.code, session.phase, session.is_close_confirmed) == (ZkCode.OK, Phase.CLOSED, True)
    assert session.take_outcomes()[-1] is SessionState.CLOSED


def test_a_connection_lost_while_closing_ends_the_zookeeper_session() -> None:
    session = connected()
    session.close()
    sent(session)

    session.connection_lost(session.attempt, "", 1.0)

    assert session.phase is Phase.CLOSED
    assert not session.is_close_confirmed
    assert not session.wants_connection


@pytest.mark.parametrize("steps", range(4))
def test_aborting_a_zookeeper_session_ends_the_session_in_every_phase(steps: int) -> None:
    session = new_session()
    if steps > 0:
        session.tick(0.0)
    if steps > 1:
        session.connection_made(1, 0.0)
    if steps > 2:
        receive(session, answer())
    request = requests.get("/a", False)
    session.submit(request)

    session.abort()

    assert (session.phase, request.code) == (Phase.CLOSED, ZkCode.CLOSED)
