"""Workers for tests that are forked from the process that has collected: tests are imported once, not by each worker.

`pytest --workers 5`. A free worker gets the next group of tests, in the order of the collection; it runs a group to its
end. A worker that dies fails the test that it ran, and another one takes the rest of its group.
"""

import atexit
import os
import signal
import traceback
import warnings
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Final, NoReturn

import pytest

INTERRUPTED: Final = 130


class Worker:
    """A forked process as the first process sees it, and the tests that it has to run."""

    def __init__(self, pid: int, connection: Connection) -> None:
        self.pid = pid
        self.connection = connection
        self.tests: deque[int] = deque()
        """Positions among the collected tests; the first one runs, or is the next to run."""
        self.has_finished = False

    def send(self, tests: list[int]) -> None:
        """Let the worker run these tests; none: end."""
        self.tests.extend(tests)
        try:
            self.connection.send(tests)
        except OSError:
            return  # it has died: its end of the connection says so

    def end(self) -> int:
        """Wait for the end of the process, and return its exit status; negative for a signal."""
        self.connection.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class ForkedWorkers:
    """The plugin that runs the collected tests in `count` forked processes; `group_of` names the group of a test."""

    def __init__(self, count: int, group_of: Callable[[pytest.Item], str]) -> None:
        self._count = count
        self._group_of = group_of
        self._groups: deque[list[int]] = deque()
        self._workers: dict[Connection, Worker] = {}
        self._forks = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all tests in workers. None lets pytest do it: it also knows errors of the collection."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        groups: dict[str, list[int]] = {}
        for position, item in enumerate(session.items):
            groups.setdefault(self._group_of(item), []).append(position)
        self._groups = deque(groups.values())
        try:
            for _ in range(min(self._count, len(groups))):
                self._fork(session, [])
            while self._workers:
                for connection in wait(list(self._workers)):
                    if worker := self._workers.get(connection):  # type: ignore[call-overload]
                        self._receive(session, worker)
        finally:
            self._stop()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _fork(self, session: pytest.Session, tests: list[int]) -> None:
        """Start a worker that runs these tests first."""
        here, there = Pipe()
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one directory for all workers
        self._forks += 1
        pid = os.fork()
        if pid == 0:
            for connection in (here, *self._workers):
                connection.close()
            _run_worker(session, there, f"worker-{self._forks}")
        there.close()
        worker = self._workers[here] = Worker(pid, here)
        if tests:
            worker.send(tests)

    def _receive(self, session: pytest.Session, worker: Worker) -> None:
        """Act on the next message of a worker, or on its end."""
        try:
            kind, content = worker.connection.recv()
        except (EOFError, OSError):
            self._on_end(session, worker)
            return
        match kind:
            case "next":
                stops = session.shouldfail or session.shouldstop or not self._groups
                worker.send([] if stops else self._groups.popleft())
            case "report":
                report = session.config.hook.pytest_report_from_serializable(config=session.config, data=content)
                session.config.hook.pytest_runtest_logreport(report=report)
                if session.shouldfail or session.shouldstop:
                    self._stop()
            case "tested":
                worker.tests.popleft()
            case "warning":
                message, category, filename, lineno, when, nodeid = content
                warning = warnings.WarningMessage(message, category, filename, lineno)
                session.config.hook.pytest_warning_recorded.call_historic(
                    kwargs={"warning_message": warning, "when": when, "nodeid": nodeid, "location": None}
                )
            case "finished":
                worker.has_finished = True
            case "error":
                raise RuntimeError(f"a worker for tests failed:\n{content}")

    def _on_end(self, session: pytest.Session, worker: Worker) -> None:
        """Where a worker died, fail its test, and let another one go on behind it."""
        del self._workers[worker.connection]
        status = worker.end()
        if worker.has_finished:
            return
        if not worker.tests:
            raise RuntimeError(f"a worker for tests ended with status {status} between two tests")
        item = session.items[worker.tests.popleft()]
        text = f"the process that ran this test ended with status {status}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        session.config.hook.pytest_runtest_logreport(report=report)
        if not (session.shouldfail or session.shouldstop):
            self._fork(session, list(worker.tests))

    def _stop(self) -> None:
        """Interrupt the workers that still run, and wait for their end; they close what their tests have opened."""
        for worker in self._workers.values():
            os.kill(worker.pid, signal.SIGINT)
        for worker in self._workers.values():
            worker.end()
        self._workers.clear()


class _Messages:
    """The plugin of a worker: reports and warnings go to the first process."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self.is_open = False
        """pytest repeats earlier warnings for a new plugin; the first process has them."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send how a phase of a test ended."""
        content = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", content))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str, nodeid: str) -> None:
        """Send a warning; its own object may hold anything."""
        w = warning_message
        if self.is_open:
            self._connection.send(("warning", (str(w.message), w.category, w.filename, w.lineno, when, nodeid)))


class _Terminal:
    """What pytest-timeout and hypothesis use of the terminal reporter, which only the first process has."""

    def __init__(self, writer: Any) -> None:
        self._tw = writer


def _run_worker(session: pytest.Session, connection: Connection, name: str) -> NoReturn:
    """Run groups of tests until there are no more, then end this process."""
    status = 1
    try:
        _prepare_worker(session, connection, name)
        _run_groups(session, connection)
        connection.send(("finished", None))
        status = 0
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError:
        pass  # the first process has ended
    except BaseException:
        connection.send(("error", traceback.format_exc()))
    finally:
        atexit._run_exitfuncs()
        os._exit(status)


def _prepare_worker(session: pytest.Session, connection: Connection, name: str) -> None:
    """Give this process its own captured output and temporary directory; what it reports goes through the pipe."""
    config: Any = session.config
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()  # the files of the first process have one position for all
    capture.suspend_global_capture()
    factory = config._tmp_path_factory
    factory._basetemp = factory.getbasetemp() / name
    factory._basetemp.mkdir()
    writer = config.get_terminal_writer()
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(_Terminal(writer), "terminalreporter")
    messages = _Messages(config, connection)
    config.pluginmanager.register(messages)
    messages.is_open = True


def _run_groups(session: pytest.Session, connection: Connection) -> None:
    """Run groups of tests; what fixtures of the session opened is closed at the end, also after an interrupt."""
    try:
        while tests := _next_group(connection):
            for position, following in zip(tests, [*tests[1:], None], strict=True):
                # behind the last test of a group, only what belongs to the session is kept
                behind: Any = session if following is None else session.items[following]
                item = session.items[position]
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=behind)
                connection.send(("tested", None))
                if session.shouldfail or session.shouldstop:
                    return
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        session._setupstate.teardown_exact(None)


def _next_group(connection: Connection) -> list[int]:
    """Return the positions of the next tests; none when all are taken."""
    connection.send(("next", None))
    tests: list[int] = connection.recv()
    return tests
