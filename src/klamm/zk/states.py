"""The phases of a session and the valid transitions between them. Source: ClientCnxn.java, States and SendThread."""

from enum import StrEnum
from typing import Final

from klamm.zk.errors import ZkCode


class Phase(StrEnum):
    """The phases of a session; the last three are final."""

    WAITING = "waiting"  # no connection; the next attempt is due at a known time
    CONNECTING = "connecting"  # the driver is opening the connection
    HANDSHAKE = "handshake"  # open; the connect request is sent
    CONNECTED = "connected"
    EXPIRED = "expired"
    AUTH_FAILED = "auth failed"
    CLOSED = "closed"


WAITING, CONNECTING, HANDSHAKE, CONNECTED, EXPIRED, AUTH_FAILED, CLOSED = Phase

VALID_PREVIOUS: Final = {
    WAITING: {CONNECTING, HANDSHAKE, CONNECTED},
    CONNECTING: {WAITING},
    HANDSHAKE: {CONNECTING},
    CONNECTED: {HANDSHAKE},
    EXPIRED: {HANDSHAKE, CONNECTED},
    AUTH_FAILED: {CONNECTED},
    CLOSED: {WAITING, CONNECTING, HANDSHAKE, CONNECTED},
}
"""By phase, the phases from which a session may enter it."""

ENDED: Final = {
    EXPIRED: ZkCode.SESSION_EXPIRED,
    AUTH_FAILED: ZkCode.AUTH_FAILED,
    CLOSED: ZkCode.CLOSED,
}
"""The final phases, with the error code that requests get in each."""


class SessionState(StrEnum):
    """The states that the owner of a session is notified of; the last three are final."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    EXPIRED = "expired"
    AUTH_FAILED = "auth failed"
    CLOSED = "closed"
