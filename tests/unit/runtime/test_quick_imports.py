"""What the start of a process imports, and how."""

import gc
import subprocess
import sys

import pytest

from klamm.runtime.quick_imports import quick_imports

UNUSED = "this"  # a module that nothing imports


def test_imports_run_without_garbage_collection_and_without_unused_packages() -> None:
    with quick_imports(UNUSED, "sys"):
        assert not gc.isenabled()
        with pytest.raises(ImportError):
            __import__(UNUSED)
        import sys as still_there

    assert gc.isenabled()
    assert UNUSED not in sys.modules
    assert sys.modules["sys"] is still_there


def test_garbage_collection_that_was_disabled_stays_disabled_after_imports() -> None:
    gc.disable()
    try:
        with quick_imports():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_node_imports_neither_rich_nor_prometheus_client_before_it_needs_them() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "klamm.broker", "/no/server.properties"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120)

    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert {"klamm.broker.run", "structlog.dev"} <= imported
    assert not imported & {"rich.console", "prometheus_client"}
