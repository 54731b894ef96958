"""The session state machine: transitions, packets it sends, timeouts, and events of earlier connections."""

import struct
from itertools import product

import pytest
from tests.unit.zk.session_packets import (
    DATA,
    SERVERS,
    LoadedDice,
    answer,
    connect,
    connected,
    new_session,
    packet,
    receive,
    reply,
    sent,
    submitted,
)

from klamm.zk import requests
from klamm.zk.errors import ZkCode
from klamm.zk.jute import buffer
from klamm.zk.session import Session
from klamm.zk.states import VALID_PREVIOUS, Phase, SessionState

ALLOWED = """
    WAITING>CONNECTING CONNECTING>HANDSHAKE HANDSHAKE>CONNECTED
    CONNECTING>WAITING HANDSHAKE>WAITING CONNECTED>WAITING
    HANDSHAKE>EXPIRED CONNECTED>EXPIRED CONNECTED>AUTH_FAILED
    WAITING>CLOSED CONNECTING>CLOSED HANDSHAKE>CLOSED CONNECTED>CLOSED
"""


def test_only_the_listed_phase_transitions_of_a_zookeeper_session_are_allowed() -> None:
    moves = {f"{a.name}>{b.name}" for a, b in product(Phase, repeat=2) if a in VALID_PREVIOUS[b]}

    assert moves == set(ALLOWED.split())


def phase(session: Session) -> Phase:
    """As a call, so that mypy does not take it for unchanged."""
    return session.phase


def test_the_first_zookeeper_connection_requests_a_new_session() -> None:
    session = new_session()
    assert (session.phase, session.wants_connection) == (Phase.WAITING, False)

    session.tick(0.0)
    assert (session.phase, session.server, session.attempt) == (Phase.CONNECTING, SERVERS[2], 1)
    session.connection_made(1, 0.1)
    assert phase(session) is Phase.HANDSHAKE
    assert b"".join(session.take_outgoing(0.1)) == packet(
        struct.pack(">iqiq", 0, 0, 6000, 0) + buffer(bytes(16)) + b"\0"
    )
    receive(session, answer(timeout_ms=4000), 0.2)

    assert session.phase is Phase.CONNECTED
    assert (session.session_id, session.timeout_ms) == (7, 4000)
    assert session.take_outcomes() == [SessionState.CONNECTED]


def test_a_zookeeper_reconnect_requests_the_same_session_with_its_last_zxid() -> None:
    session = connected()
    (xid,) = submitted(session, requests.get("/a", False))
    receive(session, reply(xid, DATA, zxid=99))
    session.connection_lost(session.attempt, "", 3.0)
    session.tick(3.0)
    session.connection_made(session.attempt, 3.0)

    assert session.server == SERVERS[1]
    body = struct.pack(">iqiq", 0, 99, 6000, 7) + buffer(b"password" * 2) + b"\0"
    assert b"".join(session.take_outgoing(3.0)) == packet(body)


@pytest.mark.parametrize("body", [answer(timeout_ms=0), answer(session=0), answer(timeout_ms=-1)])
def test_a_connect_response_without_a_session_id_means_that_the_session_expired(body: bytes) -> None:
    session = connected()
    waiting = requests.get("/a", False)
    submitted(session, waiting)
    session.connection_lost(session.attempt, "", 1.0)
    session.take_outcomes()
    session.tick(2.0)
    session.connection_made(session.attempt, 2.0)
    receive(session, body, 2.0)

    assert session.take_outcomes() == [waiting, SessionState.EXPIRED]
    assert (waiting.code, session.phase, session.wake_at()) == (ZkCode.SESSION_EXPIRED, Phase.EXPIRED, None)
    late = requests.get("/a", False)
    session.submit(late)
    assert late.code is ZkCode.SESSION_EXPIRED
    session.close()
    session.abort()
    session.tick(9.0)
    assert session.phase is Phase.EXPIRED


def test_a_session_expired_reply_ends_the_zookeeper_session() -> None:
    session = connected()
    first, second = requests.get("/a", False), requests.get("/b", False)
    xid, _ = submitted(session, first, second)

    receive(session, reply(xid, error=-112))

    assert [first.code, second.code] == [ZkCode.SESSION_EXPIRED] * 2
    assert session.phase is Phase.EXPIRED


@pytest.mark.parametrize("error", [-112, -118])
def test_bytes_received_after_the_end_of_a_zookeeper_connection_are_ignored(error: int) -> None:
    session = connected()
    first, second = requests.get("/a", False), requests.get("/b", False)
    submitted(session, first, second)

    receive(session, reply(first.xid, error=error) + reply(second.xid, DATA) + reply(99))

    assert second.code is not ZkCode.OK
    assert "malformed" not in session.last_failure


def test_a_session_moved_error_makes_the_client_reconnect_with_the_same_session() -> None:
    session = connected()
    request = requests.get("/a", False)
    (xid,) = submitted(session, request)

    receive(session, reply(xid, error=-118))

    assert (session.phase, request.code, session.unanswered) == (Phase.WAITING, None, 1)


def test_a_connection_attempt_that_times_out_is_followed_by_the_next_zookeeper_server() -> None:
    session = new_session()
    session.tick(0.0)
    assert session.wake_at() == 2.0  # a third of the timeout for each of three servers
    session.connection_made(1, 1.0)
    session.tick(1.9)
    assert session.phase is Phase.HANDSHAKE
    session.tick(2.0)
    assert (session.phase, session.last_failure) == (
        Phase.WAITING,
        "c:3: the server did not establish the session before its timeout",
    )
    session.tick(2.0)
    assert session.server == SERVERS[1]


@pytest.mark.parametrize(
    ("servers", "timeout_ms", "expected"),
    [(1, 20_000, [2, 4, 8, 10, 10]), (1, 1_000, [0.5] * 3), (3, 30_000, [2, 2, 2, 4, 4, 4, 8, 8, 8, 10])],
)
def test_the_connect_timeout_per_zookeeper_server_grows_in_each_round(
    servers: int, timeout_ms: int, expected: list[float]
) -> None:
    """One that is starting may swallow the request: the first attempts are short, so that none costs the session."""
    session = Session(SERVERS[:servers], timeout_ms, LoadedDice())
    now, allowed = 0.0, []
    for _ in expected:
        session.tick(now)
        due = session.wake_at()
        assert due is not None
        allowed.append(round(due - now, 3))
        session.tick(due)
        now = session.wake_at() or 0.0

    assert allowed == expected


def test_events_of_an_abandoned_zookeeper_connection_attempt_are_ignored() -> None:
    session = new_session()
    session.tick(0.0)
    session.connection_lost(1, "refused", 0.0)
    session.tick(0.0)
    assert session.attempt == 2

    session.connection_made(1, 0.1)
    session.connection_lost(1, "late", 0.1)
    session.receive(1, answer(), 0.1)

    assert phase(session) is Phase.CONNECTING
    session.connection_made(2, 0.2)
    session.receive(1, answer(), 0.2)
    assert session.phase is Phase.HANDSHAKE


def test_the_zookeeper_reconnect_backoff_grows_per_round_and_resets_after_a_connection() -> None:
    session = new_session()
    now, waits = 0.0, []
    for _ in range(24):
        session.tick(now)
        session.connection_lost(session.attempt, "refused", now)
        due = session.wake_at()
        assert due is not None
        waits.append(round(due - now, 3))
        now = due
    assert waits[::3] == [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]

    connect(session, now)
    session.connection_lost(session.attempt, "", now + 0.5)
    assert session.wake_at() == now + 1.5  # it did not last: no reason to hurry
    connect(session, now + 2)
    session.connection_lost(session.attempt, "", now + 4)
    assert session.wake_at() == now + 4


def test_an_idle_session_pings_after_a_third_of_its_timeout_and_disconnects_after_two() -> None:
    session = connected()
    assert session.wake_at() == 2.0
    session.tick(1.99)
    assert sent(session, 1.99) == []
    session.tick(2.0)
    assert sent(session, 2.0) == [(-2, 11, b"")]
    assert session.wake_at() == 4.0

    receive(session, reply(-2), 2.5)
    assert session.wake_at() == 4.0
    session.tick(4.0)
    sent(session, 4.0)
    session.tick(6.4)
    assert session.phase is Phase.CONNECTED
    session.tick(6.6)
    assert (session.phase, session.last_failure) == (Phase.WAITING, "c:3: no packet from the server for 4100 ms")
    assert session.take_outcomes() == [SessionState.DISCONNECTED]


def test_a_zookeeper_ping_blocked_by_backpressure_is_not_queued_twice() -> None:
    session = connected()
    session.tick(2.0)
    session.tick(2.0)

    assert session.wake_at() == 4.0
    assert len(sent(session, 2.5)) == 1
