"""The pure machine: every move, what it sends, and what it makes of packets that are late, cut, foreign or too long."""

import struct
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.zk import requests
from klamm.zk.errors import ZkCode
from klamm.zk.hosts import Server
from klamm.zk.jute import Stat, buffer, text
from klamm.zk.operations import Create
from klamm.zk.requests import Request
from klamm.zk.session import Session
from klamm.zk.states import VALID_PREVIOUS, Phase, SessionState
from klamm.zk.watches import EventType, WatchEvent

SERVERS = (Server("a", 1), Server("b", 2), Server("c", 3))
STAT = Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
STAT_BYTES = struct.pack(">qqqqiiiqiiq", *STAT)


class LoadedDice:
    def shuffle(self, x: list[Server]) -> None:
        x.reverse()

    def random(self) -> float:
        return 1.0


def packet(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def answer(timeout_ms: int = 6000, session: int = 7) -> bytes:
    return packet(struct.pack(">iiq", 0, timeout_ms, session) + buffer(b"password" * 2) + b"\0")


def reply(xid: int, body: bytes = b"", error: int = 0, zxid: int = 1) -> bytes:
    return packet(struct.pack(">iqi", xid, zxid, error) + body)


def notification(event: int, path: str) -> bytes:
    return reply(-1, struct.pack(">ii", event, 3) + text(path), zxid=-1)


DATA = buffer(b"data") + STAT_BYTES


def new_session(**options: Any) -> Session:
    return Session(SERVERS, 6000, LoadedDice(), **options)


def connected(**options: Any) -> Session:
    session = new_session(**options)
    connect(session, 0.0)
    session.take_outcomes()
    return session


def connect(session: Session, now: float) -> None:
    session.tick(now)
    session.connection_made(session.attempt, now)
    session.take_outgoing(now)
    session.receive(session.attempt, answer(), now)


def sent(session: Session, now: float = 0.0) -> list[tuple[int, int, bytes]]:
    """What the session wants written: (xid, opcode, body) of each packet."""
    stream = b"".join(session.take_outgoing(now))
    found = []
    while stream:
        size, xid, opcode = struct.unpack_from(">iii", stream)
        found.append((xid, opcode, stream[12 : 4 + size]))
        stream = stream[4 + size :]
    return found


def submitted(session: Session, *requests_: Request[Any]) -> list[int]:
    """Submit and send; their xids."""
    for request in requests_:
        session.submit(request)
    sent(session)
    return [r.xid for r in requests_]


def receive(session: Session, data: bytes, now: float = 0.0) -> None:
    session.receive(session.attempt, data, now)


# ---- moves


ALLOWED = """
    WAITING>CONNECTING CONNECTING>HANDSHAKE HANDSHAKE>CONNECTED
    CONNECTING>WAITING HANDSHAKE>WAITING CONNECTED>WAITING
    HANDSHAKE>EXPIRED CONNECTED>EXPIRED CONNECTED>AUTH_FAILED
    WAITING>CLOSED CONNECTING>CLOSED HANDSHAKE>CLOSED CONNECTED>CLOSED
"""


def test_exactly_these_moves_are_allowed() -> None:
    moves = {f"{a.name}>{b.name}" for a, b in product(Phase, repeat=2) if a in VALID_PREVIOUS[b]}

    assert moves == set(ALLOWED.split())


def test_the_first_connection() -> None:
    session = new_session()
    assert (session.phase, session.wants_connection) == (Phase.WAITING, False)

    session.tick(0.0)
    assert (session.phase, session.server, session.attempt) == (Phase.CONNECTING, SERVERS[2], 1)
    session.connection_made(1, 0.1)
    assert session.phase is Phase.HANDSHAKE
    assert b"".join(session.take_outgoing(0.1)) == packet(
        struct.pack(">iqiq", 0, 0, 6000, 0) + buffer(bytes(16)) + b"\0"
    )
    receive(session, answer(timeout_ms=4000), 0.2)

    assert session.phase is Phase.CONNECTED
    assert (session.session_id, session.timeout_ms) == (7, 4000)
    assert session.take_outcomes() == [SessionState.CONNECTED]


def test_a_reconnection_asks_for_the_same_session_and_says_how_far_it_saw() -> None:
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
def test_an_answer_without_a_session_is_expiry(body: bytes) -> None:
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


def test_a_reply_may_tell_of_expiry() -> None:
    session = connected()
    first, second = requests.get("/a", False), requests.get("/b", False)
    xid, _ = submitted(session, first, second)

    receive(session, reply(xid, error=-112))

    assert [first.code, second.code] == [ZkCode.SESSION_EXPIRED] * 2
    assert session.phase is Phase.EXPIRED


@pytest.mark.parametrize("error", [-112, -118])
def test_what_follows_the_end_of_a_connection_is_not_read(error: int) -> None:
    session = connected()
    first, second = requests.get("/a", False), requests.get("/b", False)
    submitted(session, first, second)

    receive(session, reply(first.xid, error=error) + reply(second.xid, DATA) + reply(99))

    assert second.code is not ZkCode.OK
    assert "malformed" not in session.last_failure


def test_a_moved_session_is_taken_back_by_reconnecting() -> None:
    session = connected()
    request = requests.get("/a", False)
    (xid,) = submitted(session, request)

    receive(session, reply(xid, error=-118))

    assert (session.phase, request.code, session.unanswered) == (Phase.WAITING, None, 1)


def test_an_attempt_that_takes_too_long_gives_way_to_the_next_server() -> None:
    session = new_session()
    session.tick(0.0)
    assert session.wake_at() == 2.0  # a third of the timeout for each of three servers
    session.connection_made(1, 1.0)
    session.tick(1.9)
    assert session.phase is Phase.HANDSHAKE
    session.tick(2.0)
    assert (session.phase, session.last_failure) == (Phase.WAITING, "c:3: no session within the time for one server")
    session.tick(2.0)
    assert session.server == SERVERS[1]


@pytest.mark.parametrize(
    ("servers", "timeout_ms", "expected"),
    [(1, 20_000, [2, 4, 8, 10, 10]), (1, 1_000, [0.5] * 3), (3, 30_000, [2, 2, 2, 4, 4, 4, 8, 8, 8, 10])],
)
def test_a_server_gets_longer_each_round(servers: int, timeout_ms: int, expected: list[float]) -> None:
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


def test_news_of_an_attempt_given_up_is_ignored() -> None:
    session = new_session()
    session.tick(0.0)
    session.connection_lost(1, "refused", 0.0)
    session.tick(0.0)
    assert session.attempt == 2

    session.connection_made(1, 0.1)
    session.connection_lost(1, "late", 0.1)
    session.receive(1, answer(), 0.1)

    assert session.phase is Phase.CONNECTING
    session.connection_made(2, 0.2)
    session.receive(1, answer(), 0.2)
    assert session.phase is Phase.HANDSHAKE


def test_back_off_grows_by_the_round_and_starts_anew_after_a_good_connection() -> None:
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


def test_ping_after_a_third_and_loss_after_two_thirds() -> None:
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
    assert (session.phase, session.last_failure) == (Phase.WAITING, "c:3: nothing heard for 4100 ms")
    assert session.take_outcomes() == [SessionState.DISCONNECTED]


def test_a_ping_that_the_connection_does_not_take_is_not_made_again_and_again() -> None:
    session = connected()
    session.tick(2.0)
    session.tick(2.0)

    assert session.wake_at() == 4.0
    assert len(sent(session, 2.5)) == 1


# ---- requests


def test_requests_are_pipelined_up_to_the_limit_and_answered_in_order() -> None:
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


def test_what_was_in_flight_is_sent_again_before_what_is_newer() -> None:
    session = connected(max_in_flight=2)
    asked = [requests.get(f"/{i}", False) for i in range(4)]
    submitted(session, *asked[:3])
    session.connection_lost(session.attempt, "", 1.0)
    session.submit(asked[3])
    asked[1].abandoned = True
    connect(session, 2.0)

    assert [body[4:-1] for _, _, body in sent(session)] == [b"/0", b"/2"]
    assert session.take_outcomes() == [SessionState.DISCONNECTED, SessionState.CONNECTED, asked[1]]


def test_about_a_megabyte_is_handed_over_at_a_time() -> None:
    session = connected()
    for i in range(10):
        session.submit(requests.create(Create(f"/{i}", bytes(400_000))))

    assert [len(sent(session)) for _ in range(5)] == [3, 3, 3, 1, 0]


def test_xids_start_again_before_they_overflow() -> None:
    session = connected()
    session._xid = 0x7FFFFFFF - 1

    assert submitted(session, requests.get("/a", False), requests.get("/a", False)) == [0x7FFFFFFF, 1]


def test_a_request_beyond_the_limit_is_refused_unsent() -> None:
    session = connected(max_packet_bytes=1000)
    fits, too_long = (requests.create(Create("/a", bytes(n))) for n in (900, 1000))
    session.submit(fits)
    session.submit(too_long)

    assert too_long.code is ZkCode.REQUEST_TOO_LARGE
    assert len(sent(session)) == 1


def test_a_request_that_a_server_keeps_hanging_up_on_is_given_up() -> None:
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


def test_silence_is_not_held_against_a_large_request() -> None:
    session = connected()
    large = requests.create(Create("/a", bytes(2 << 20)))
    submitted(session, large)
    for i in range(1, 6):
        session.tick(100.0 * i)
        connect(session, 100.0 * i + 50)
        sent(session, 100.0 * i + 50)

    assert large.code is None


def test_close_goes_after_what_was_asked() -> None:
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
    assert (request.code, session.phase) == (ZkCode.OK, Phase.CLOSED)
    assert session.take_outcomes()[-1] is SessionState.CLOSED


def test_a_connection_lost_while_closing_ends_the_session() -> None:
    session = connected()
    session.close()
    sent(session)

    session.connection_lost(session.attempt, "", 1.0)

    assert session.phase is Phase.CLOSED
    assert not session.wants_connection


@pytest.mark.parametrize("steps", range(4))
def test_abort_ends_it_anywhere(steps: int) -> None:
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


# ---- watches and credentials


def test_watches_are_remembered_from_answers_and_forgotten_when_they_fire() -> None:
    session = connected()
    asked = [
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


def test_watches_go_before_requests_and_are_not_sent_twice_after_another_loss() -> None:
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


def test_expiry_does_not_complete_what_nobody_asked() -> None:
    session = connected()
    (xid,) = submitted(session, requests.get("/a", True))
    receive(session, reply(xid, DATA))
    session.connection_lost(session.attempt, "", 3.0)
    connect(session, 3.0)
    sent(session)
    session.take_outcomes()

    session.abort()

    assert session.take_outcomes() == [SessionState.CLOSED]


def test_watches_that_cannot_be_set_again_cost_the_connection() -> None:
    session = connected()
    (xid,) = submitted(session, requests.get("/a", True))
    receive(session, reply(xid, DATA))
    session.connection_lost(session.attempt, "", 3.0)
    connect(session, 3.0)
    sent(session)

    receive(session, reply(-8, error=-6))

    assert (session.phase, session.last_failure) == (
        Phase.WAITING,
        "b:2: malformed packet: watches could not be set again: UNIMPLEMENTED",
    )


def test_many_watches_are_set_again_in_several_packets_all_from_the_same_moment() -> None:
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


def test_credentials_are_sent_first_on_every_connection_and_confirmed_once() -> None:
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


def test_credentials_whose_answer_was_lost_are_answered_once() -> None:
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
    assert "credentials that were not sent" in session.last_failure


def test_credentials_added_without_a_connection_wait_for_it() -> None:
    session = new_session()
    added = requests.auth("digest", b"b:b")
    session.add_auth(added)
    connect(session, 0.0)

    assert [xid for xid, _, _ in sent(session)] == [-4]


def test_refused_credentials_end_the_session() -> None:
    session = connected()
    waiting, added = requests.get("/a", False), requests.auth("digest", b"b:b")
    submitted(session, waiting)
    session.add_auth(added)
    sent(session)

    receive(session, reply(-4, error=-115))

    assert added.code is waiting.code is ZkCode.AUTH_FAILED
    assert session.take_outcomes()[-1] is SessionState.AUTH_FAILED


# ---- bytes as they come


CONVERSATION = (
    answer() + notification(3, "/w") + reply(-2) + reply(1, DATA) + notification(2, "/v") + reply(2, error=-101)
)
FOLLOWS = [SessionState.CONNECTED, WatchEvent(EventType.DATA_CHANGED, "/w"), 1, WatchEvent(EventType.DELETED, "/v"), 2]


def converse(pieces: list[bytes]) -> list[Any]:
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
def test_a_stream_cut_anywhere_reads_the_same(cut: int) -> None:
    assert converse([CONVERSATION[: len(answer())], CONVERSATION[len(answer()) : cut], CONVERSATION[cut:]]) == FOLLOWS


@pytest.mark.parametrize("cut", range(len(answer())))
def test_an_answer_to_the_connect_request_cut_anywhere(cut: int) -> None:
    first = answer()
    assert converse([first[:cut], first[cut:], CONVERSATION[len(first) :]]) == FOLLOWS


def test_byte_by_byte() -> None:
    assert converse([CONVERSATION[i : i + 1] for i in range(len(CONVERSATION))]) == FOLLOWS


MALFORMED = {
    "xid nobody asked": (reply(9, DATA), "a reply to request 9, expected 1"),
    "second before first": (reply(2, DATA), "a reply to request 2, expected 1"),
    "auth nobody sent": (reply(-4), "credentials that were not sent"),
    "short header": (packet(b"123"), "a reply of 3 bytes"),
    "empty": (packet(b""), "a reply of 0 bytes"),
    "negative length": (struct.pack(">i", -5), "a packet of -5 bytes"),
    "absurd length": (b"\x7fHTTP", "a packet of 2135446612 bytes"),
    "long packet that is no reply": (struct.pack(">iiqi", 5 << 20, 77, 1, 0), "a reply to request 77"),
    "long notification": (struct.pack(">iiqi", 5 << 20, -1, 1, 0), "a reply to request -1"),
    "unknown event": (notification(9, "/a"), "a watch event of type 9"),
    "notification cut short": (reply(-1, struct.pack(">ii", 3, 3)), "4 bytes wanted"),
    "path is not text": (reply(-1, struct.pack(">iii", 3, 3, 1) + b"\xff"), "not UTF-8"),
    "reply with less than promised": (reply(1, buffer(b"data") + STAT_BYTES[:-1]), "68 bytes wanted"),
}


@pytest.mark.parametrize(("data", "why"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_packet_costs_the_connection_and_nothing_else(data: bytes, why: str) -> None:
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
def test_rubbish_instead_of_a_session(data: bytes) -> None:
    session = new_session()
    session.tick(0.0)
    session.connection_made(1, 0.0)
    receive(session, data)

    assert (session.phase, session.session_id) == (Phase.WAITING, 0)
    assert "malformed packet" in session.last_failure


def test_a_reply_beyond_the_limit_fails_its_request_alone_and_is_never_held_in_memory() -> None:
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
def test_whatever_arrives_the_machine_stays_whole(pieces: list[bytes]) -> None:
    session = connected()
    request = requests.get("/a", True)
    submitted(session, request)
    for piece in pieces:
        receive(session, piece)

    assert session.phase in (Phase.CONNECTED, Phase.WAITING, Phase.EXPIRED, Phase.AUTH_FAILED)
    assert session.unanswered <= 1


@given(st.data())
def test_a_flipped_bit_never_raises(data: st.DataObject) -> None:
    stream = bytearray(CONVERSATION)
    at = data.draw(st.integers(0, len(stream) * 8 - 1))
    stream[at // 8] ^= 1 << at % 8

    converse([bytes(stream)])
