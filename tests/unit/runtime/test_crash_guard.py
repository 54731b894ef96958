"""Starting the crash guard: where it can never run, and what a kernel answers that refuses a pidfd for the moment."""

import errno
import os

import pytest

from klamm.runtime import crash_guard
from klamm.runtime.crash_guard import GuardProcesses, NoCrashGuard


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The processes that were started, instead of starting them."""
    made: list[str] = []

    def spawn() -> None:
        made.append("guard")
        raise OSError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(crash_guard, "_spawn", spawn)
    return made


def refuse_pidfds(patch: pytest.MonkeyPatch, number: int) -> None:
    """Answer pidfd_open with this error."""

    def pidfd_open(pid: int, flags: int = 0) -> int:
        raise OSError(number, os.strerror(number))

    patch.setattr(os, "pidfd_open", pidfd_open)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM], ids=["an older kernel", "a seccomp filter"])
async def test_a_kernel_that_refuses_pidfds_can_never_run_a_crash_guard(
    monkeypatch: pytest.MonkeyPatch, spawned: list[str], number: int
) -> None:
    refuse_pidfds(monkeypatch, number)

    with pytest.raises(NoCrashGuard, match=os.strerror(number)):
        await GuardProcesses().start()

    assert not spawned


async def test_process_1_of_a_container_has_no_crash_guard_which_the_kernel_would_kill_with_it(
    monkeypatch: pytest.MonkeyPatch, spawned: list[str]
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)

    with pytest.raises(NoCrashGuard, match="process 1 of its container") as raised:
        await GuardProcesses().start()

    assert raised.value.remedy == "Start the node by a process of the container that outlives it"
    assert not spawned


async def test_a_crash_guard_may_be_started_later_if_file_descriptors_are_used_up(
    monkeypatch: pytest.MonkeyPatch, spawned: list[str]
) -> None:
    refuse_pidfds(monkeypatch, errno.EMFILE)

    with pytest.raises(OSError, match="Too many open files") as raised:
        await GuardProcesses().start()

    assert not isinstance(raised.value, NoCrashGuard)
    assert not spawned


async def test_a_crash_guard_is_started_where_the_kernel_has_pidfds(spawned: list[str]) -> None:
    with pytest.raises(OSError, match="no more processes"):
        await GuardProcesses().start()

    assert spawned == ["guard"]
