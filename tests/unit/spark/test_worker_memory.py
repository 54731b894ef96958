"""That a Spark worker reuses the pages of freed large buffers from its first task on, seen from outside it."""

import pytest
from tests.support.page_faults import PAGES, faults_after, needs_glibc

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


@needs_glibc
@pytest.mark.parametrize("task", [READ, WRITE], ids=["read", "write"])
def test_a_spark_task_makes_its_process_reuse_freed_large_buffers(task: str) -> None:
    assert faults_after(task) < PAGES // 4
