"""How many tasks run at once: what the driver stores, and what a planning process finds."""

from pathlib import Path

import pytest
from pyspark import SparkFiles
from tests.unit.spark.scripts import log, scripted

from klamm.runtime.disk import RealDisk
from klamm.spark.parallelism import FILE, parallelism_of, stored_parallelism

WORLD = scripted(orders_0=log(0, 1))
MINE = WORLD.processors()


class Context:
    """A SparkContext, as far as its parallelism is concerned."""

    def __init__(self, master: str, parallelism: int, settings: dict[str, str]) -> None:
        self.master = master
        self.defaultParallelism = parallelism
        self._settings = settings

    def getConf(self) -> "Context":  # noqa: N802  # Spark's name
        return self

    def contains(self, name: str) -> bool:
        return name in self._settings

    def get(self, name: str, default: str) -> str:
        return self._settings.get(name, default)


EXECUTORS = {"spark.executor.instances": "20", "spark.executor.cores": "4"}
CASES = {
    "local": (Context("local", 1, {}), 1),
    "local with threads, whatever the processors": (Context("local[16]", 16, EXECUTORS), 16),
    "executors that run": (Context("spark://a:7077", 100, {}), 100),
    "executors that have not started": (Context("yarn", 2, EXECUTORS), 80),
    "executors of one core": (Context("yarn", 2, {"spark.executor.instances": "20"}), 20),
    "no executor yet, and none named": (Context("spark://a:7077", 1, {}), MINE),
    "executors of a local cluster, which start after the driver": (Context("local-cluster[3, 2,1024]", 2, {}), 6),
    "the user's own": (Context("yarn", 7, EXECUTORS | {"spark.default.parallelism": "7"}), 7),
}


@pytest.mark.parametrize(("context", "expected"), CASES.values(), ids=CASES)
def test_parallelism_is_sparks_and_counts_executors_that_have_not_started(context: Context, expected: int) -> None:
    assert parallelism_of(WORLD, context) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("inside", ["", "session-id"], ids=["of the context", "of a session with files of its own"])
def test_a_planning_process_finds_the_parallelism_in_the_directory_of_sparks_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    (tmp_path / FILE).write_text("48")
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path / inside) if inside else str(tmp_path))

    assert stored_parallelism(WORLD, RealDisk()) == 48


def test_a_planning_process_that_finds_no_parallelism_takes_the_processors_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))

    assert stored_parallelism(WORLD, RealDisk()) == MINE
