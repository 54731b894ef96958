"""How a process ends after its event loop."""

import os
import subprocess
import sys
from typing import Final

PROGRAM: Final = """
import atexit
from klamm.runtime.main_loop import end_process
class Freed:
    def __del__(self): print("freed")
kept = Freed()
atexit.register(print, "atexit")
print("last line", end="")
end_process(3)
"""


def start_program(program: str) -> subprocess.Popen[bytes]:
    """Start Python with buffered output."""
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )


def test_end_process_writes_buffered_output_and_frees_no_objects() -> None:
    process = start_program(PROGRAM)

    output, errors = process.communicate(timeout=60)

    assert (process.returncode, output, errors) == (3, b"last line", b"")


def test_end_process_ends_although_its_output_pipe_is_not_read() -> None:
    process = start_program(f"input()\n{PROGRAM}")
    assert process.stdout is not None
    process.stdout.close()

    _, errors = process.communicate(b"go\n", timeout=60)

    assert (process.returncode, errors) == (3, b"")
