"""kafkajs, which npm installs once into `.cache/kafkajs`; without node and npm, tests that need it are left out."""

import shutil
from functools import cache
from pathlib import Path

from tests.support.cache import CACHE, made_once, run

VERSION = "2.2.4"
DIRECTORY = CACHE / f"kafkajs-{VERSION}"
SOURCE = Path(__file__).parent / "kafkajs_client.mjs"


@cache
def why_missing() -> str | None:
    """Why kafkajs cannot run here, in one sentence; None if it can. Installs it first."""
    if shutil.which("node") is None:
        return "kafkajs needs node, which is not installed"
    if not DIRECTORY.is_dir() and shutil.which("npm") is None:
        return f"kafkajs is not in {DIRECTORY}, and there is no npm to install it"
    with made_once(DIRECTORY) as partial:
        if partial is not None:
            command = ["npm", "install", "--prefix", str(partial), "--no-audit", "--no-fund", f"kafkajs@{VERSION}"]
            run(f"install kafkajs {VERSION} with npm", command)
    return None


def program(*arguments: str) -> list[str]:
    """The command line of `kafkajs_client.mjs`."""
    return ["node", str(SOURCE), str(DIRECTORY / "node_modules"), *arguments]
