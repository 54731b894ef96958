"""That a Spark worker reuses the pages of freed large buffers from its first task on, seen from outside it."""

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the system's malloc is not glibc's")

READ = """
from klamm.spark.tasks import run_task
assert not list(run_task(None, None))
"""
WRITE = """
from klamm.spark.sink import write_rows
try:
    write_rows(None, None, iter(()))
except AssertionError:
    pass  # outside a Spark worker there is no task
"""
COUNT_FAULTS = """
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
PAGES = 20 * 6 * (4 << 20) // 4096


@pytest.mark.parametrize("task", [READ, WRITE], ids=["read", "write"])
def test_a_spark_task_makes_its_process_reuse_freed_large_buffers(task: str) -> None:
    done = subprocess.run([sys.executable, "-c", task + COUNT_FAULTS], capture_output=True, text=True, check=True)

    assert int(done.stdout) < PAGES // 4
