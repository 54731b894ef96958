"""Page faults of a process that uses large buffers again and again: few, if freed ones keep their pages."""

import platform
import subprocess
import sys
from typing import Final

import pytest

COUNT = """
import resource
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def use():
    return [bytearray(b"x") * (4 << 20) for _ in range(6)]
use()
before = faults()
for _ in range(20):
    use()
print(faults() - before)
"""
PAGES: Final = 20 * 6 * (4 << 20) // 4096
"""The pages of all buffers together."""

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the system's malloc is not glibc's")


def faults_after(program: str) -> int:
    """The page faults of a Python process that uses the buffers after this program."""
    command = [sys.executable, "-c", program + COUNT]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
