"""The crash guard's process: it closes the ZooKeeper sessions of a node whose process has ended.

It runs as a program of its own with nothing but the standard library, to start fast and stay at a few MB. It acts only
when the kernel reports through a pidfd that the process has ended, never on a timeout. Lines on standard input name
the sessions: `watch SESSION PASSWORD TIMEOUT_MS SERVERS RECORD_PATH` and `forget SESSION`, with hexadecimal numbers.
Source of the packets: zookeeper.jute, OpCode (ZooKeeper 3.5 and newer).
"""

import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time

_CONNECT_TIMEOUT_S = 1.0
_PAUSE_S = 0.1
_CLOSE_SESSION, _SET_DATA, _CREATE = -11, 5, 1
_NO_NODE = -101
_OPEN_ACL = struct.pack(">ii", 1, 31) + b"\0\0\0\x05world" + b"\0\0\0\x06anyone"
_PIDFD_GET_INFO = 0xC040FF0B  # for a struct of 64 bytes, Linux 6.13
_PIDFD_INFO_EXIT = 1 << 3  # Linux 6.15
_MAX_LINE_BYTES = 65_536
_MAX_SESSION_ID, _MAX_TIMEOUT_MS, _MAX_PORT = 2**64 - 1, 2**31 - 1, 65_535


class Session:
    """A ZooKeeper session of the node, and where to record how the node's process ended."""

    def __init__(
        self, session_id: int, password: bytes, timeout_ms: int, servers: list[tuple[str, int]], record_path: str
    ) -> None:
        self.session_id = session_id
        self.password = password
        self.timeout_ms = timeout_ms
        self.servers = servers
        self.record_path = record_path


def parse_session(fields: list[str]) -> Session:
    """Return the session that the fields of a `watch` line describe. Raises ValueError where they are malformed.

    Numbers out of range are malformed, too: they would end this process when it closes the sessions of the line and of
    others.
    """
    if len(fields) != 5:
        raise ValueError(
            f"the line has {len(fields)} fields after `watch`, not SESSION PASSWORD TIMEOUT_MS SERVERS RECORD_PATH"
        )
    servers = []
    for server in fields[3].split(","):
        host, colon, port = server.rpartition(":")
        if not colon or not host:
            raise ValueError(f"the ZooKeeper server {server!r} is not host:port")
        servers.append((host.strip("[]"), parse_number("port", port, 10, _MAX_PORT)))
    return Session(
        parse_number("session id", fields[0], 16, _MAX_SESSION_ID),
        bytes.fromhex(fields[1]),
        parse_number("session timeout", fields[2], 10, _MAX_TIMEOUT_MS),
        servers,
        "" if fields[4] == "-" else fields[4],
    )


def parse_number(what: str, text: str, base: int, largest: int) -> int:
    """Return the number in the text, from 1 to `largest`. Raises ValueError for any other text."""
    number = int(text, base)
    if not 0 < number <= largest:
        raise ValueError(f"the {what} is not between 1 and {largest}")
    return number


def apply_line(sessions: dict[int, Session], line: bytes) -> None:
    """Add or remove a ZooKeeper session as a line from the node says: `watch SESSION ...` or `forget SESSION`.

    A malformed line is reported on standard error and changes nothing.
    """
    try:
        verb, _, rest = line.decode().partition(" ")
        if verb == "watch":
            session = parse_session(rest.split(" ", 4))
            sessions[session.session_id] = session
        elif verb == "forget":
            sessions.pop(int(rest, 16), None)
        else:
            raise ValueError("the line begins neither with `watch` nor with `forget`")
    except ValueError as error:
        report(f"ignored a line of {len(line)} bytes from the node: {error}")


def open_parent(parent: int) -> int | None:
    """Return a pidfd of this process's parent; None where it has ended before this process could look at it.

    A process gets another parent only when its own has ended: with `getppid` unchanged, the pidfd is the parent's.
    """
    try:
        pidfd = os.pidfd_open(parent)
    except ProcessLookupError:
        return None
    return pidfd if os.getppid() == parent else None


def wait_for_end(pidfd: int | None, stdin: int) -> dict[int, Session]:
    """Apply the lines from the node until its process ends; return the sessions that are open then.

    Without a pidfd the process has ended already. Returns without a session, and perhaps before the process ends, after
    the node closed its end of the pipe.
    """
    sessions: dict[int, Session] = {}
    poll = select.poll()
    poll.register(stdin, select.POLLIN)
    if pidfd is not None:
        poll.register(pidfd, select.POLLIN)
    pending = b""
    is_open = True
    while True:
        ready = {fd for fd, _ in poll.poll(None if pidfd is not None else 0)}
        has_ended = pidfd is None or pidfd in ready
        if is_open and (stdin in ready or has_ended):
            data = os.read(stdin, _MAX_LINE_BYTES) if stdin in ready else b""
            is_open = bool(data)
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                apply_line(sessions, line)
            if len(pending) > _MAX_LINE_BYTES:
                report(f"ignored {len(pending)} bytes from the node without an end of line")
                pending = b""
            if is_open:
                continue  # also after the end of the process: what it wrote before comes first
            poll.unregister(stdin)
        if has_ended:
            return sessions
        if not sessions:
            return {}


def read_wait_status(pidfd: int, pid: int) -> int | None:
    """Return the wait status of the process that has ended, as `os.waitpid` has it; None where the kernel hides it.

    The pidfd has it once the parent has waited for the process, `/proc` until then.
    """
    status = _wait_status_of_pidfd(pidfd)
    if status is None:
        status = _wait_status_of_zombie(pid)
    if status is None:
        status = _wait_status_of_pidfd(pidfd)  # the parent waited for the process between the two
    return status


def _wait_status_of_pidfd(pidfd: int) -> int | None:
    """Return the wait status of a process that its parent has waited for; None before that and on older kernels."""
    info = bytearray(struct.pack("=Q", _PIDFD_INFO_EXIT).ljust(64, b"\0"))
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    (mask,) = struct.unpack_from("=Q", info)
    if not mask & _PIDFD_INFO_EXIT:
        return None
    (status,) = struct.unpack_from("=i", info, 60)
    return int(status)


def _wait_status_of_zombie(pid: int) -> int | None:
    """Return the wait status of a process that its parent has not waited for yet; None where it is not there."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[49]) if fields[:1] == [b"Z"] and len(fields) > 49 else None


def record_of(status: int | None) -> bytes:
    """Return the content of the record: the signal or the exit status, and the time in ms."""
    end = ""
    if status is not None:
        is_signal = os.WIFSIGNALED(status)
        end = f'"signal":{os.WTERMSIG(status)},' if is_signal else f'"status":{os.waitstatus_to_exitcode(status)},'
    return f'{{"version":1,{end}"timestamp":"{time.time_ns() // 1_000_000}"}}'.encode()


def close_session(session: Session, record: bytes) -> str:
    """Record how the process ended, then close the session; return what happened, in a few words.

    All servers are tried in turn, each at all addresses of its name, at least once, until the session's timeout is
    over: then the ensemble has ended it. A server may accept a connection and not serve it, as one without a quorum.
    """
    deadline = time.monotonic() + session.timeout_ms / 1000
    failure = "it names no server"
    while True:
        for host, port in session.servers:
            try:
                addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except (OSError, ValueError) as error:
                failure = f"{host}:{port}: {error}"
                continue
            for family, kind, protocol, _, address in addresses:
                try:
                    with socket.socket(family, kind, protocol) as connection:
                        connection.settimeout(_CONNECT_TIMEOUT_S)
                        connection.connect(address)
                        return "closed" if _close_over(connection, session, record) else "had ended before"
                except (OSError, struct.error, ValueError) as error:
                    failure = f"{host}:{port}: {error}"
        if time.monotonic() >= deadline:
            return f"could not be closed within its timeout of {session.timeout_ms} ms ({failure})"
        time.sleep(_PAUSE_S)


def _close_over(connection: socket.socket, session: Session, record: bytes) -> bool:
    """Attach to the session over this connection and close it. Returns False where it has ended already."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connect = struct.pack(">iqiQ", 0, 0, session.timeout_ms, session.session_id)
    _send(connection, connect + _buffer(session.password) + b"\0")
    _, timeout_ms, session_id = struct.unpack_from(">iiQ", _receive(connection))
    if timeout_ms <= 0 or session_id != session.session_id:
        return False
    if session.record_path:
        path = _buffer(session.record_path.encode())
        _send(connection, struct.pack(">ii", 1, _SET_DATA) + path + _buffer(record) + struct.pack(">i", -1))
        if _receive_error(connection) == _NO_NODE:
            create = struct.pack(">ii", 2, _CREATE) + path + _buffer(record) + _OPEN_ACL + struct.pack(">i", 0)
            _send(connection, create)
            _receive_error(connection)  # without a record the session is closed all the same
    _send(connection, struct.pack(">ii", 3, _CLOSE_SESSION))
    _receive_error(connection)
    return True


def _buffer(content: bytes) -> bytes:
    """Encode a byte string as ZooKeeper does: the length, then the bytes."""
    return struct.pack(">i", len(content)) + content


def _send(connection: socket.socket, packet: bytes) -> None:
    """Send a packet, with its length before it."""
    connection.sendall(_buffer(packet))


def _receive(connection: socket.socket) -> bytes:
    """Receive a packet. Raises OSError if the connection ends first, ValueError if the bytes are not a packet."""
    (length,) = struct.unpack(">i", _receive_exactly(connection, 4))
    if not 0 <= length <= _MAX_LINE_BYTES:
        raise ValueError(f"ZooKeeper sent a packet of {length} bytes, but at most {_MAX_LINE_BYTES} were expected")
    return _receive_exactly(connection, length)


def _receive_exactly(connection: socket.socket, count: int) -> bytes:
    """Receive exactly `count` bytes. Raises OSError where the connection ends before."""
    received = b""
    while len(received) < count:
        part = connection.recv(count - len(received))
        if not part:
            raise OSError("the ZooKeeper server closed the connection")
        received += part
    return received


def _receive_error(connection: socket.socket) -> int:
    """Receive replies up to one that is neither a ping nor a watch event; return its error code."""
    while True:
        xid, _, error = struct.unpack_from(">iqi", _receive(connection))
        if xid > 0:
            return int(error)


def report(message: str) -> None:
    """Write a line to standard error, which is the node's; never raises."""
    try:
        os.write(2, f"klamm crash guard: {message}\n".encode())
    except OSError:
        return


def main(parent: int) -> None:
    """Guard the process `parent`, which started this one, until it has ended or needs no guard."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are for the node; this process ends after it
    pidfd = open_parent(parent)
    sessions = wait_for_end(pidfd, 0)
    if not sessions:
        return
    record = record_of(None if pidfd is None else read_wait_status(pidfd, parent))
    for session in sessions.values():
        outcome = close_session(session, record)
        report(f"the node's process {parent} has ended; its ZooKeeper session 0x{session.session_id:x} {outcome}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
