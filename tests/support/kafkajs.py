"""kafkajs, which npm installs once into `.cache/kafkajs`; without node and npm, tests that need it are left out."""

import fcntl
import shutil
import subprocess
from functools import cache
from pathlib import Path

VERSION = "2.2.4"
CACHE = Path(__file__).parents[2] / ".cache"
DIRECTORY = CACHE / f"kafkajs-{VERSION}"
SOURCE = Path(__file__).parent / "kafkajs_client.mjs"


@cache
def why_missing() -> str | None:
    """Why kafkajs cannot run here, in one sentence; None if it can. Installs it first."""
    if shutil.which("node") is None:
        return "kafkajs needs node, which is not installed"
    if not _is_installed() and shutil.which("npm") is None:
        return f"kafkajs is not in {DIRECTORY}, and there is no npm to install it"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "kafkajs.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_installed():
            _install()
    return None


def _is_installed() -> bool:
    return (DIRECTORY / "installed").exists()


def _install() -> None:
    """Let npm install it. Raises RuntimeError if it fails."""
    command = ["npm", "install", "--prefix", str(DIRECTORY), "--no-audit", "--no-fund", f"kafkajs@{VERSION}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"npm could not install kafkajs {VERSION}: {(done.stdout + done.stderr)[-2000:]}")
    (DIRECTORY / "installed").touch()


def program(*arguments: str) -> list[str]:
    """The command line of `kafkajs_client.mjs`."""
    return ["node", str(SOURCE), str(DIRECTORY / "node_modules"), *arguments]
