"""Ports for child processes: no two processes on a machine get the same one."""

import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import Final

import pytest

from klamm.runtime import ports
from klamm.runtime.ports import BLOCK, LOWEST, MAX_BLOCKS, PortBlocks, free_ports, is_listening

HOST: Final = "127.0.0.1"
DRAWN: Final = 30
PROCESSES: Final = 8
DRAW_AND_WAIT: Final = f"""
import sys
from klamm.runtime import ports
ports._first_ephemeral_port = lambda: {LOWEST + 4 * PROCESSES * BLOCK}
print(*ports.free_ports({DRAWN}), flush=True)
sys.stdin.read()
"""
DRAW_IN_A_FORKED_PROCESS_TOO: Final = f"""
import os
from klamm.runtime import ports
ports._first_ephemeral_port = lambda: {LOWEST + 20 * BLOCK}
ports.free_port()
pid = os.fork()
os.write(1, (" ".join(map(str, ports.free_ports({DRAWN}))) + " ").encode())
if pid:
    os.waitpid(pid, 0)
"""


def test_processes_that_draw_ports_at_the_same_time_get_different_ones() -> None:
    """Nothing listens on them; half of these processes would draw one twice by chance."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", DRAW_AND_WAIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(PROCESSES)
    ]
    drawn: list[int] = []
    for process in processes:
        assert process.stdout is not None
        drawn += map(int, process.stdout.readline().split())
    for process in processes:
        process.communicate()

    assert len(set(drawn)) == len(drawn) == PROCESSES * DRAWN


def test_a_forked_process_draws_other_ports_than_its_parent() -> None:
    run = subprocess.run(
        [sys.executable, "-c", DRAW_IN_A_FORKED_PROCESS_TOO], stdout=subprocess.PIPE, text=True, check=True
    )

    drawn = run.stdout.split()
    assert len(set(drawn)) == len(drawn) == 2 * DRAWN


def test_a_process_that_drew_ports_ends_without_a_warning_about_open_sockets() -> None:
    draw = [sys.executable, "-W", "default", "-c", "from klamm.runtime import ports; ports.free_port()"]

    assert subprocess.run(draw, capture_output=True, text=True, check=True).stderr == ""


def test_a_process_draws_a_port_again_only_after_all_others() -> None:
    blocks = PortBlocks(LOWEST, LOWEST + 400 * BLOCK)
    count = MAX_BLOCKS * BLOCK

    drawn = [blocks._next() for _ in range(2 * count)]

    assert len(set(drawn[:count])) == count
    assert drawn[count:] == drawn[:count]


def one_block() -> PortBlocks:
    """The ports of a single block that is free."""
    for start in range(LOWEST, LOWEST + 400 * BLOCK, BLOCK):
        blocks = PortBlocks(start, start + BLOCK)
        try:
            blocks.draw(HOST)
        except OSError:
            continue
        return blocks
    raise AssertionError("all blocks are reserved")


def test_a_port_on_which_a_server_listens_is_not_drawn() -> None:
    blocks = one_block()
    port = blocks.draw(HOST)

    with socket.create_server((HOST, port)):
        assert is_listening(HOST, port)
        assert port not in [blocks.draw(HOST) for _ in range(2 * BLOCK)]


def test_no_port_is_drawn_when_other_processes_have_reserved_all() -> None:
    blocks = one_block()
    start = min(blocks.draw(HOST) for _ in range(BLOCK)) // BLOCK * BLOCK

    with pytest.raises(OSError, match="other processes have reserved all ports"):
        PortBlocks(start, start + BLOCK).draw(HOST)


def test_drawn_ports_are_below_the_range_of_outgoing_connections() -> None:
    with socket.socket() as outgoing:
        outgoing.bind((HOST, 0))
        assert max(free_ports(10)) < outgoing.getsockname()[1]


def test_a_process_whose_ports_are_all_in_use_reserves_another_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "MAX_BLOCKS", 2)
    blocks = PortBlocks(LOWEST, LOWEST + 400 * BLOCK)
    with ExitStack() as stack:
        for _ in range(2 * BLOCK + 1):
            taken = stack.enter_context(socket.socket())
            taken.bind((HOST, blocks.draw(HOST)))  # raises where the port is in use

    assert len(blocks._reservations) == 3
