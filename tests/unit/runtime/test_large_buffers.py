"""That a freed large buffer's pages stay with the process, seen from outside it."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from klamm.runtime.memory import keep_large_buffers
kept = {keep} and keep_large_buffers()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def use():
    return [bytearray(b"x") * (4 << 20) for _ in range(6)]
use()
before = faults()
for _ in range(20):
    use()
print(kept, faults() - before)
"""
PAGES = 20 * 6 * (4 << 20) // 4096


def run(keep: bool) -> tuple[str, int]:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(keep=keep)], capture_output=True, text=True, check=True)
    kept, faults = done.stdout.split()
    return kept, int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the system's malloc is not glibc's")
def test_released_large_buffers_are_reused() -> None:
    kept, faults = run(keep=True)

    assert kept == "True"
    assert faults < PAGES // 4
