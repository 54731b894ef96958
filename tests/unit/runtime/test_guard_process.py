"""The crash guard's process: only the end of the guarded process counts, and rubbish changes nothing."""

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from klamm.runtime import guard_process
from klamm.runtime.guard_process import (
    Session,
    apply_line,
    close_session,
    open_parent,
    read_wait_status,
    record_of,
    wait_for_end,
)

WATCH = b"watch 1f aabb 6000 zk-1:2181,[::1]:2182 /kafka/klamm/process_ends/1"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until it is killed."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The two ends of a pipe; the test closes the writing one."""
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


def test_the_crash_guard_parses_session_password_timeout_servers_and_record_path() -> None:
    sessions: dict[int, Session] = {}
    apply_line(sessions, WATCH)

    session = sessions[0x1F]
    assert (session.password, session.timeout_ms) == (b"\xaa\xbb", 6000)
    assert session.servers == [("zk-1", 2181), ("::1", 2182)]
    assert session.record_path == "/kafka/klamm/process_ends/1"


@pytest.mark.parametrize(
    "line",
    [
        b"", b"watch", b"watch 1f aabb 6000 zk-1:2181", b"watch xyz aabb 6000 zk-1:2181 -",
        b"watch 1f abc 6000 zk-1:2181 -", b"watch 1f aabb soon zk-1:2181 -", b"watch 1f aabb 6000 zk-1 -",
        b"watch 1f aabb 6000 zk-1:port -", b"forget", b"forget me", b"close 1f", b"\xff\xfe\x00",
        b"watch 2a aabb 6000 127.0.0.1:65536 -", b"watch 2a aabb 6000 127.0.0.1:0 -",
        b"watch 2a aabb 0 zk-1:2181 -", b"watch 2a aabb -5 zk-1:2181 -", b"watch 2a aabb 2147483648 zk-1:2181 -",
        b"watch 2a aabb " + b"9" * 400 + b" zk-1:2181 -", b"watch 0 aabb 6000 zk-1:2181 -",
        b"watch 1" + b"0" * 16 + b" aabb 6000 zk-1:2181 -", b"watch -1f aabb 6000 zk-1:2181 -",
    ],
)  # fmt: skip
def test_the_crash_guard_reports_a_malformed_input_line_and_ignores_that_line(
    line: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    sessions: dict[int, Session] = {}
    apply_line(sessions, WATCH)
    apply_line(sessions, line)

    assert list(sessions) == [0x1F]
    assert f"ignored a line of {len(line)} bytes" in capfd.readouterr().err


def test_the_crash_guard_returns_the_sessions_still_registered_when_its_process_ends(
    child: subprocess.Popen[bytes], pipe: tuple[int, int]
) -> None:
    reading, writing = pipe
    pidfd = os.pidfd_open(child.pid)
    child.kill()
    select.select([pidfd], [], [])
    os.write(writing, WATCH + b"\nwatch 2a 00 6000 zk-1:2181 -\nforget 1f\n")
    os.close(writing)

    assert list(wait_for_end(pidfd, reading)) == [0x2A]


def test_the_crash_guard_notices_its_nodes_end_although_another_process_holds_the_pipe(
    child: subprocess.Popen[bytes], pipe: tuple[int, int]
) -> None:
    reading, writing = pipe
    pidfd = os.pidfd_open(child.pid)
    os.write(writing, WATCH + b"\n")
    child.kill()

    assert list(wait_for_end(pidfd, reading)) == [0x1F]
    os.close(writing)


def test_the_crash_guard_does_not_treat_a_stopped_process_as_ended(
    child: subprocess.Popen[bytes], pipe: tuple[int, int]
) -> None:
    reading, writing = pipe
    pidfd = os.pidfd_open(child.pid)
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    os.write(writing, WATCH + b"\nforget 1f\n")
    os.close(writing)

    assert wait_for_end(pidfd, reading) == {}
    child.send_signal(signal.SIGCONT)


def test_the_crash_guard_drops_an_input_line_over_the_length_limit(
    child: subprocess.Popen[bytes], pipe: tuple[int, int], capfd: pytest.CaptureFixture[str]
) -> None:
    reading, writing = pipe
    pidfd = os.pidfd_open(child.pid)
    program = "import os\nfor _ in range(3): os.write(1, b'x' * 50_000)\nos.write(1, b'\\n')"
    writer = subprocess.Popen([sys.executable, "-I", "-S", "-c", program], stdout=writing)
    os.close(writing)

    assert wait_for_end(pidfd, reading) == {}
    assert writer.wait() == 0
    assert "without an end of line" in capfd.readouterr().err


def test_the_crash_guard_treats_a_process_that_is_not_its_parent_as_ended(child: subprocess.Popen[bytes]) -> None:
    assert open_parent(child.pid) is None


def test_the_crash_guard_finds_its_running_parent_process() -> None:
    assert open_parent(os.getppid()) is not None


@pytest.mark.parametrize("reaped", ["never", "before", "meanwhile"])
def test_the_crash_guard_records_the_signal_that_ended_the_process(
    child: subprocess.Popen[bytes], reaped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pidfd = os.pidfd_open(child.pid)
    child.kill()
    select.select([pidfd], [], [])
    if reaped == "before":
        child.wait()
    if reaped == "meanwhile":
        monkeypatch.setattr(guard_process, "_wait_status_of_zombie", lambda pid: child.wait() and None)
    status = read_wait_status(pidfd, child.pid)

    if status is None:
        assert reaped != "never"  # kernels before 6.15 forget the status of a process that its parent has waited for
    else:
        assert b'"signal":9,' in record_of(status)


def test_the_crash_guard_records_an_exit_status_or_an_unknown_end() -> None:
    assert b'{"version":1,"status":3,"timestamp":"' in record_of(3 << 8)
    assert record_of(None).startswith(b'{"version":1,"timestamp":"')


def test_a_running_process_has_no_wait_status(child: subprocess.Popen[bytes]) -> None:
    assert read_wait_status(os.pidfd_open(child.pid), child.pid) is None


def serve_one_session(listening: socket.socket, closes: list[bytes]) -> None:
    """Grant one connection its session as a ZooKeeper server does, and take the request that closes it."""
    connection, _ = listening.accept()
    with connection:
        if not (connect := connection.recv(4096)):
            return
        granted = struct.pack(">iiQ", 0, 6000, struct.unpack_from(">Q", connect, 20)[0])
        connection.sendall(struct.pack(">i", len(granted)) + granted)
        closes.append(connection.recv(4096))
        connection.sendall(struct.pack(">iiqi", 16, 3, 0, 0))


def test_the_crash_guard_tries_all_addresses_of_a_zookeeper_server_name(monkeypatch: pytest.MonkeyPatch) -> None:
    closes: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as serving, socket.create_server(("127.0.0.1", 0)) as mute:
        serving.settimeout(10)
        mute.settimeout(10)
        hang_up = threading.Thread(target=lambda: mute.accept()[0].close())
        serve = threading.Thread(target=lambda: serve_one_session(serving, closes))
        hang_up.start()
        serve.start()
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", server.getsockname()) for server in (mute, serving)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, *_, **__: found)
        session = Session(0x1F, b"secret", 1, [("zookeeper", 2181)], "")

        outcome = close_session(session, b"")

        monkeypatch.undo()
        if outcome != "closed":
            socket.create_connection(serving.getsockname()).close()  # ends the thread
        hang_up.join()
        serve.join()
    assert outcome == "closed"
    assert [struct.unpack(">iii", close) for close in closes] == [(8, 3, -11)]
