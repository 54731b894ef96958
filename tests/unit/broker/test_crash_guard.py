"""The node's side of the crash guard: every guard learns all sessions, and one that ends is replaced."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from klamm.broker.crash_guard import CrashGuard
from klamm.config.node_config import parse_node_config
from klamm.runtime.crash_guard import Guard, GuardedSession, NoCrashGuard
from klamm.runtime.world import real_world
from klamm.zk.errors import NoAuth, NoChildrenForEphemerals, NotEmpty, SessionExpired, ZkError

SESSION = GuardedSession(7, b"secret", 6000, [("zk-1", 2181)])
CONFIG = b"zookeeper.connect=zk-1:2181/kafka\nlog.dirs=/data\n"


class ScriptedGuard:
    """A guard that records what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.reads = True
        self.ended = asyncio.Event()
        self.is_closed = False

    def watch(self, session: GuardedSession) -> None:
        if not self.reads:
            raise BlockingIOError("full")
        self.told.append(session)

    def forget(self, session_id: int) -> None:
        self.told.append(session_id)

    async def wait_for_end(self) -> None:
        await self.ended.wait()

    def kill(self) -> None:
        self.ended.set()

    async def close(self) -> None:
        self.is_closed = True


class ScriptedGuards:
    """Starts the guards of a test; `errors` come first."""

    def __init__(self, *errors: OSError) -> None:
        self.errors = list(errors)
        self.started: asyncio.Queue[ScriptedGuard] = asyncio.Queue()

    async def start(self) -> Guard:
        if self.errors:
            raise self.errors.pop(0)
        guard = ScriptedGuard()
        self.started.put_nowait(guard)
        return guard


class Records:
    """A store that takes the record, or refuses it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def begin_process_record(self, broker: int) -> None:
        if self.error is not None:
            raise self.error


def part(guards: ScriptedGuards, more: bytes = b"") -> CrashGuard:
    config = parse_node_config(CONFIG + more, "server.properties")
    return CrashGuard(replace(real_world(), guards=guards), config)


async def test_the_crash_guard_gets_zookeeper_sessions_that_were_opened_before_its_start() -> None:
    guards = ScriptedGuards()
    crash_guard = part(guards)
    crash_guard.watch(SESSION)
    await crash_guard.start()
    guard = await guards.started.get()
    crash_guard.forget(SESSION.session_id)
    crash_guard.forget(99)

    assert guard.told == [SESSION, 7]
    await crash_guard.close()
    assert guard.is_closed


async def test_the_crash_guard_gets_the_record_path_with_chroot_once_the_broker_id_is_known() -> None:
    guards = ScriptedGuards()
    crash_guard = part(guards)
    await crash_guard.start()
    guard = await guards.started.get()
    crash_guard.watch(SESSION)

    await crash_guard.begin_record(Records(), 4)  # type: ignore[arg-type]
    crash_guard.watch(replace(SESSION, session_id=8))

    path = "/kafka/klamm/process_ends/4"
    assert guard.told == [SESSION, replace(SESSION, record_path=path), replace(SESSION, session_id=8, record_path=path)]
    await crash_guard.close()


@pytest.mark.parametrize("refusal", [NoAuth("/klamm"), NoChildrenForEphemerals("/klamm"), NotEmpty("/klamm")])
async def test_the_crash_guard_works_without_a_record_where_zookeeper_refuses_to_write_it(refusal: ZkError) -> None:
    guards = ScriptedGuards()
    crash_guard = part(guards)
    crash_guard.watch(SESSION)
    await crash_guard.start()
    guard = await guards.started.get()

    await crash_guard.begin_record(Records(refusal), 4)  # type: ignore[arg-type]

    assert guard.told == [SESSION]
    await crash_guard.close()


async def test_a_node_whose_session_ends_while_it_prepares_the_process_record_starts_again() -> None:
    with pytest.raises(SessionExpired):
        await part(ScriptedGuards()).begin_record(Records(SessionExpired("/klamm")), 4)  # type: ignore[arg-type]


async def test_a_crash_guard_that_ended_is_replaced_and_its_replacement_gets_all_sessions() -> None:
    guards = ScriptedGuards()
    crash_guard = part(guards)
    await crash_guard.start()
    first = await guards.started.get()
    crash_guard.watch(SESSION)
    first.ended.set()

    second = await guards.started.get()
    await asyncio.sleep(0)

    assert second.told == [SESSION]
    assert (crash_guard.starts, crash_guard.is_running) == (2, True)
    await crash_guard.close()


async def test_a_crash_guard_that_does_not_read_its_pipe_is_killed_and_replaced() -> None:
    guards = ScriptedGuards()
    crash_guard = part(guards)
    await crash_guard.start()
    first = await guards.started.get()
    first.reads = False
    crash_guard.watch(SESSION)

    second = await guards.started.get()
    await asyncio.sleep(0)

    assert second.told == [SESSION]
    await crash_guard.close()


async def test_starting_a_crash_guard_is_retried_after_a_failure() -> None:
    guards = ScriptedGuards(OSError("no more processes"))
    crash_guard = part(guards)
    await crash_guard.start()
    assert not crash_guard.is_running

    await guards.started.get()

    await crash_guard.close()


async def test_starting_a_crash_guard_is_not_retried_on_a_system_that_cannot_run_guards() -> None:
    guards = ScriptedGuards(NoCrashGuard("no pidfds", "Run it elsewhere"))
    crash_guard = part(guards)
    with capture_logs() as logs:
        await crash_guard.start()
    await crash_guard.close()

    assert [(line["reason"], line["action"]) for line in logs] == [
        ("no pidfds", "Run it elsewhere, or set klamm.crash.guard=false to remove this warning.")
    ]
    assert guards.started.empty()
    assert crash_guard.starts == 0


async def test_klamm_crash_guard_false_starts_no_guard_and_writes_no_record() -> None:
    guards = ScriptedGuards()
    crash_guard = part(guards, b"klamm.crash.guard=false\n")
    await crash_guard.start()
    await crash_guard.begin_record(Records(AssertionError("must not be called")), 4)  # type: ignore[arg-type]
    await crash_guard.close()

    assert guards.started.empty()
