"""What a Spark worker imports, and that it reuses the pages of freed large buffers from its first task on."""

import os
import subprocess
import sys

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


@pytest.mark.parametrize("worker", ["PYTHON_WORKER", ""], ids=["worker", "driver"])
def test_a_spark_worker_does_not_import_what_formats_logs_for_a_terminal(worker: str) -> None:
    script = "import klamm.spark.source, sys; print('rich' in sys.modules)"
    variables = {**os.environ, "SPARK_PYTHON_RUNTIME": worker}
    done = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == str(not worker)
