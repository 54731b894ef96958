"""Shared by tests of the session state machine: packets of a server, and sessions in each phase."""

import struct
from typing import Any

from klamm.zk.hosts import Server
from klamm.zk.jute import Stat, buffer, text
from klamm.zk.requests import Request
from klamm.zk.session import Session

SERVERS = (Server("a", 1), Server("b", 2), Server("c", 3))


STAT = Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)


STAT_BYTES = struct.pack(">qqqqiiiqiiq", *STAT)


class LoadedDice:
    """Random numbers that are always the same."""

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
    """A session in phase CONNECTED."""
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
    """The packets that the session wants to write, as (xid, opcode, body)."""
    stream = b"".join(session.take_outgoing(now))
    found = []
    while stream:
        size, xid, opcode = struct.unpack_from(">iii", stream)
        found.append((xid, opcode, stream[12 : 4 + size]))
        stream = stream[4 + size :]
    return found


def submitted(session: Session, *requests_: Request[Any]) -> list[int]:
    """Submit requests and take the bytes to write; returns the xids."""
    for request in requests_:
        session.submit(request)
    sent(session)
    return [r.xid for r in requests_]


def receive(session: Session, data: bytes, now: float = 0.0) -> None:
    session.receive(session.attempt, data, now)
