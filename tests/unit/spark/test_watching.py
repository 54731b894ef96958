"""`watch`: the order in which it commits offsets, whoever reports progress meanwhile."""

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.spark.test_lag import P0, reported

from klamm.client.errors import RetriableError
from klamm.spark import watching
from klamm.spark.watching import Watch


def report(batch: int) -> dict[str, Any]:
    return {"id": "q", "batchId": batch, "sources": [{"endOffset": reported({P0: batch}), "latestOffset": None}]}


class Offsets:
    """Commits, in the order in which they end; `meanwhile` happens during the first one."""

    def __init__(self) -> None:
        self.watch: Watch | None = None
        self.committed: list[int] = []
        self.error: Exception | None = None
        self.is_first = True

    def commit(self, offsets: dict[Any, Any]) -> None:
        if self.is_first:
            self.is_first = False
            assert self.watch is not None
            self.watch.on_progress(report(6))  # as Spark's listener does in its own thread
            if self.error is not None:
                raise self.error
        self.committed.append(offsets[P0].offset)


@pytest.fixture
def offsets(monkeypatch: pytest.MonkeyPatch) -> Offsets:
    session = SimpleNamespace(streams=SimpleNamespace(addListener=lambda listener: None))
    monkeypatch.setattr(watching, "SparkSession", SimpleNamespace(active=lambda: session))
    query: Any = SimpleNamespace(id="q", name="q", recentProgress=[])
    given = Offsets()
    given.watch = Watch(query, given, CollectorRegistry())  # type: ignore[arg-type]
    return given


def test_offsets_of_a_group_are_committed_one_after_the_other_and_never_set_back(offsets: Offsets) -> None:
    assert offsets.watch is not None
    offsets.watch.on_progress(report(5))

    assert offsets.committed == [5, 6]


@pytest.mark.parametrize("error", [RetriableError("no coordinator"), RuntimeError("a bug")], ids=["refused", "bug"])
def test_a_commit_that_fails_does_not_prevent_later_ones(offsets: Offsets, error: Exception) -> None:
    assert offsets.watch is not None
    offsets.error = error
    try:
        offsets.watch.on_progress(report(5))
    except RuntimeError:
        offsets.watch.on_progress(report(7))

    assert offsets.committed[-1] == (6 if isinstance(error, RetriableError) else 7)
