"""`decisions/` of controller and coordinator are plain functions: facts in, a plan out.

Nothing waits, reads a clock or does I/O there.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOMS = Path(__file__).parents[2] / "src/klamm"
ALLOWED_MODULES = {"collections", "collections.abc", "dataclasses", "enum", "functools", "itertools", "math", "types",
                   "typing", "uuid"}  # fmt: skip
ALLOWED_ROOMS = (
    "klamm.model.",
    "klamm.controller.context",
    "klamm.controller.topic",
    "klamm.controller.decisions.",
    "klamm.controller.states",
    "klamm.coordinator.committed_offsets",
    "klamm.coordinator.decisions.",
    "klamm.coordinator.group",
    "klamm.coordinator.requests",
    "klamm.coordinator.states",
    "klamm.zk.registrations",  # the form of what brokers registered
    "klamm.zk.znodes",
)
_IMPURE = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)


def impurities(code: str) -> Iterator[str]:
    """Each import that is not allowed, and each use of async, as `line: what`."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, _IMPURE):
            yield f"{node.lineno}: {type(node).__name__}"
        elif isinstance(node, ast.Import):
            yield from (f"{node.lineno}: import {a.name}" for a in node.names if not _is_allowed(a.name))
        elif isinstance(node, ast.ImportFrom) and not _is_allowed(node.module or ""):
            yield f"{node.lineno}: from {node.module}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("open", "print"):
            yield f"{node.lineno}: {node.func.id}()"


def _is_allowed(module: str) -> bool:
    return module in ALLOWED_MODULES or module.startswith(ALLOWED_ROOMS)


@pytest.mark.parametrize("room", ["controller", "coordinator"])
def test_controller_decision_functions_neither_await_nor_do_io(room: str) -> None:
    modules = sorted((ROOMS / room / "decisions").glob("*.py"))
    assert modules
    found = [f"{path.name}:{what}" for path in modules for what in impurities(path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "code",
    ["import asyncio", "from time import monotonic", "from klamm.zk.store import Store", "import structlog",
     "async def f(): ...", "async def f(x):\n    await x", "print('x')"],
)  # fmt: skip
def test_the_purity_check_finds_a_controller_decision_that_awaits_or_does_io(code: str) -> None:
    assert list(impurities(code))
