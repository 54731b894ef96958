"""The entry point of `klamm`, as a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTED_IN_A_CLASS = """
import os, signal
class Interrupting:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(10): pass
class Owner:
    attribute = Interrupting()
"""
INTERRUPTED_WITHIN_TRY = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(10): pass
except:
    pass
"""


@pytest.mark.parametrize(
    ("module", "content"),
    [("typer", INTERRUPTED_IN_A_CLASS), ("typer", INTERRUPTED_WITHIN_TRY), ("pydantic", INTERRUPTED_IN_A_CLASS)],
    ids=["class", "try", "class_imported_late"],
)
def test_pressing_ctrl_c_during_any_import_ends_klamm_without_output(tmp_path: Path, module: str, content: str) -> None:
    """An exception there can be caught, or become another one, as RuntimeError in `__set_name__`."""
    (tmp_path / f"{module}.py").write_text(content)
    paths = [str(tmp_path), *sys.path]
    program = "import signal; signal.signal(2, signal.default_int_handler); import klamm.__main__"

    done = subprocess.run(
        [sys.executable, "-c", program, "topics", "list"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (130, "")
