"""Only `runtime/` touches time, network, disk, dice and processes; and the rule itself is tested."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"

FORBIDDEN_MODULES = {
    "fcntl", "gc", "glob", "http", "io", "mmap", "multiprocessing", "os", "pathlib", "random", "requests",
    "secrets", "select", "selectors", "shutil", "signal", "socket", "socketserver", "ssl",
    "subprocess", "tempfile", "threading", "time", "urllib", "concurrent",
}  # fmt: skip
FORBIDDEN_NAMES = {
    "asyncio": {
        "create_subprocess_exec", "create_subprocess_shell", "open_connection", "start_server",
        "to_thread", "open_unix_connection", "start_unix_server",
    },
    "datetime": {"now", "utcnow", "today"},
    "uuid": {"uuid1", "uuid4"},
}  # fmt: skip
FORBIDDEN_METHODS = {
    "create_connection", "create_server", "create_datagram_endpoint", "run_in_executor", "sock_recv",
    "sock_sendall", "add_signal_handler", "utcnow",
}  # fmt: skip
FORBIDDEN_BUILTINS = {"open", "input"}
ALLOWED_PATHS = {"os.path", "posixpath"}  # text only: join, dirname, basename

ALLOWED_NAMES = {"io": {"BytesIO"}}  # memory that grows without a copy


def crossings(code: str) -> Iterator[str]:
    """Each use of the outside world in a module, as `line: what`."""
    for node in ast.walk(ast.parse(code)):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_forbidden(alias.name):
                    yield f"{line}: import {alias.name}"
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = {alias.name for alias in node.names}
            if _is_forbidden(node.module) and not names <= ALLOWED_NAMES.get(node.module, set()):
                yield f"{line}: from {node.module}"
            for name in sorted(names & FORBIDDEN_NAMES.get(node.module, set())):
                yield f"{line}: from {node.module} import {name}"
        elif isinstance(node, ast.Attribute):
            owner = node.value
            root = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            if node.attr in FORBIDDEN_NAMES.get(root, set()) or node.attr in FORBIDDEN_METHODS:
                yield f"{line}: {root}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in FORBIDDEN_BUILTINS:
                yield f"{line}: {node.func.id}()"
            if node.func.id == "__import__":
                yield f"{line}: __import__()"


def _is_forbidden(module: str) -> bool:
    return module not in ALLOWED_PATHS and module.split(".")[0] in FORBIDDEN_MODULES


def modules() -> list[Path]:
    return sorted(p for p in SOURCE.rglob("*.py") if "runtime" not in p.relative_to(SOURCE).parts)


def test_only_the_runtime_package_accesses_time_network_disk_and_randomness() -> None:
    found = [f"{path.relative_to(SOURCE)}:{crossing}" for path in modules() for crossing in crossings(path.read_text())]

    assert modules()
    assert not found, "\n".join(found)


PLANTED = {
    "clock": "import time\ntime.time()",
    "clock by name": "from time import monotonic",
    "wall clock": "import datetime\ndatetime.datetime.now()",
    "wall clock, imported": "from datetime import datetime\ndatetime.now()",
    "dice": "import random",
    "secrets": "from secrets import token_bytes",
    "ids": "import uuid\nuuid.uuid4()",
    "ids by name": "from uuid import uuid4",
    "socket": "import socket",
    "stream": "import asyncio\nasyncio.open_connection('h', 1)",
    "loop connection": "async def f(loop):\n    await loop.create_connection(x)",
    "threads": "import threading",
    "executor": "def f(loop):\n    loop.run_in_executor(None, g)",
    "to_thread": "import asyncio\nasyncio.to_thread(f)",
    "file": "open('x')",
    "io": "from io import BytesIO, FileIO",
    "os": "import os\nos.remove('x')",
    "pathlib": "from pathlib import Path",
    "process": "import subprocess",
    "inside a function": "def f():\n    import time",
    "garbage collector": "import gc\ngc.freeze()",
    "hidden": "__import__('time')",
    "pool": "import concurrent.futures",
}


@pytest.mark.parametrize("code", PLANTED.values(), ids=PLANTED)
def test_the_system_access_check_finds_forbidden_access(code: str) -> None:
    assert list(crossings(code))


HARMLESS = {
    "loop time": "import asyncio\nasyncio.get_running_loop().time()",
    "sleep": "import asyncio\nasyncio.sleep(1)",
    "uuid": "import uuid\nuuid.UUID(int=0)",
    "path text": "from posixpath import join",
    "datetime arithmetic": "from datetime import datetime, UTC\ndatetime.fromtimestamp(0, UTC)",
    "memory": "from io import BytesIO",
    "our own disk": "def f(disk):\n    disk.open('x')",
}


@pytest.mark.parametrize("code", HARMLESS.values(), ids=HARMLESS)
def test_the_system_access_check_allows_code_that_only_resembles_system_access(code: str) -> None:
    assert not list(crossings(code))
