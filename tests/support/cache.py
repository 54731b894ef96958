"""`.cache`: foreign programs that tests fetch once, each in a directory of its own."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache"


@contextmanager
def made_once(directory: Path) -> Iterator[Path | None]:
    """An empty directory to fill, which then becomes `directory`, for one process at a time; None where it exists."""
    if directory.is_dir():
        yield None
        return
    parent = directory.parent
    parent.mkdir(parents=True, exist_ok=True)
    with open(parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if directory.is_dir():
            yield None
            return
        partial = parent / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        os.replace(partial, directory)


def run(what: str, command: Sequence[str], directory: Path | None = None, **environment: str) -> str:
    """What a command prints. Raises RuntimeError with `what` was to be done and the end of its output if it fails."""
    variables = {**os.environ, **environment}
    done = subprocess.run(
        command, cwd=directory, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"cannot {what}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout
