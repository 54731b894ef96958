"""Error codes and exceptions of the ZooKeeper client. Source: KeeperException.java."""

from enum import IntEnum

from klamm.model.errors import KlammError


class ZkCode(IntEnum):
    """ZooKeeper's error codes; positive numbers are errors that this client detects.

    An unknown number becomes a member of its own, so that the code of a newer server is not lost.
    """

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2  # in a failed multi: this operation came after the one that failed
    DATA_INCONSISTENCY = -3
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    OPERATION_TIMEOUT = -7
    BAD_ARGUMENTS = -8
    API_ERROR = -100
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_CALLBACK = -113
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NOT_READ_ONLY = -119
    EPHEMERAL_ON_LOCAL_SESSION = -120
    QUOTA_EXCEEDED = -125
    THROTTLED = -127

    CLOSED = 1
    REQUEST_TOO_LARGE = 2
    REPLY_TOO_LARGE = 3
    MALFORMED_REPLY = 4

    @classmethod
    def _missing_(cls, value: object) -> "ZkCode | None":
        """Make a member for an error number that this enum does not list."""
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_ = f"CODE_{value}"
        member._value_ = value
        return member


class ZkError(KlammError):
    """ZooKeeper refused a request, or it could not be sent; `code` has the reason."""

    code = ZkCode.SYSTEM_ERROR

    def __init__(self, path: str, detail: str = "") -> None:
        super().__init__(_message_of(self.code, path, detail))
        self.path = path


class NoNode(ZkError):
    code = ZkCode.NO_NODE


class NoAuth(ZkError):
    code = ZkCode.NO_AUTH


class BadVersion(ZkError):
    code = ZkCode.BAD_VERSION


class NodeExists(ZkError):
    code = ZkCode.NODE_EXISTS


class NotEmpty(ZkError):
    code = ZkCode.NOT_EMPTY


class NoChildrenForEphemerals(ZkError):
    code = ZkCode.NO_CHILDREN_FOR_EPHEMERALS


class BadArguments(ZkError):
    code = ZkCode.BAD_ARGUMENTS


class InvalidAcl(ZkError):
    code = ZkCode.INVALID_ACL


class Unimplemented(ZkError):
    code = ZkCode.UNIMPLEMENTED


class ConnectionLoss(ZkError):
    """No server could be reached in the time given to `connect`."""

    code = ZkCode.CONNECTION_LOSS


class SessionExpired(ZkError):
    """The ensemble ended the session and deleted its ephemeral znodes; this client cannot be used again."""

    code = ZkCode.SESSION_EXPIRED


class AuthFailed(ZkError):
    """The ensemble refused the credentials; this client cannot be used again."""

    code = ZkCode.AUTH_FAILED


class SessionClosed(ZkError):
    """The request was not answered before `close`."""

    code = ZkCode.CLOSED


class RequestTooLarge(ZkError):
    """The packet is above the limit (jute.maxbuffer), or servers closed the connection on it repeatedly."""

    code = ZkCode.REQUEST_TOO_LARGE


class ReplyTooLarge(ZkError):
    """The answer is above the limit (jute.maxbuffer), and was dropped."""

    code = ZkCode.REPLY_TOO_LARGE


class MalformedReply(ZkError):
    """The answer could not be decoded; its connection was closed."""

    code = ZkCode.MALFORMED_REPLY


_BY_CODE: dict[ZkCode, type[ZkError]] = {
    kind.code: kind
    for kind in (
        NoNode, NoAuth, BadVersion, NodeExists, NotEmpty, NoChildrenForEphemerals, BadArguments, InvalidAcl,
        Unimplemented, ConnectionLoss, SessionExpired, AuthFailed, SessionClosed, RequestTooLarge, ReplyTooLarge,
        MalformedReply,
    )
}  # fmt: skip


def error_of(code: ZkCode, path: str) -> ZkError:
    """The exception for this code; a ZkError with this code if it has no class of its own."""
    kind = _BY_CODE.get(code)
    if kind is not None:
        return kind(path)
    error = ZkError("", _message_of(code, path, ""))
    error.path, error.code = path, code
    return error


def _message_of(code: ZkCode, path: str, detail: str) -> str:
    """Return the message of an error: ZooKeeper's code, the znode, and what to do where an ACL forbids the access."""
    if detail:
        return f"{detail}: {path}" if path else detail
    answered = f"ZooKeeper answered {code.name}{f' for {path}' if path else ''}"
    return f"{answered}: an ACL forbids it. Change the ACL (setAcl)." if code is ZkCode.NO_AUTH else answered


class WriteRefused(KlammError):
    """ZooKeeper refuses to change a znode: an ACL forbids it, or the znode has children."""
