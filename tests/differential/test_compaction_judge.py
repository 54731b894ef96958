"""Drawn logs are compacted as by Apache Kafka's cleaner."""

from pathlib import Path

import pytest
from tests.differential.compaction_judge import Comparison, kafka_cleaner
from tests.support import apache_kafka

KINDS = {
    "format 0, plain",
    "format 0, compressed",
    "format 1, plain",
    "format 1, compressed",
    "empty batch",
    "marker with horizon",
    "tombstone with horizon",
    "aborted transaction",
}


@pytest.mark.skipif(apache_kafka.why_missing() is not None, reason=str(apache_kafka.why_missing()))
def test_drawn_logs_are_compacted_as_by_apache_kafkas_cleaner(tmp_path: Path, compacted_logs: int) -> None:
    seen: set[str] = set()
    differences = {}
    with (tmp_path / "kafka.log").open("wb") as output, kafka_cleaner(output) as kafka:
        for seed in range(compacted_logs):
            comparison = Comparison(tmp_path / str(seed), seed, kafka)
            if difference := comparison.run():
                differences[seed] = difference
            seen |= comparison.seen

    assert differences == {}
    assert seen == KINDS
