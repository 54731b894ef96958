"""A drawn part of what `make judge-batches` compares, and the rules by which it compares."""

from pathlib import Path

import pytest
from tests.differential.batch_judge import Answer, Sent, drawn, known_difference, run, stored_difference
from tests.support import apache_kafka

from klamm.model.errors import ErrorCode
from klamm.wire.compression import Codec
from klamm.wire.records import NewRecord, build_batch

BATCH = build_batch([NewRecord(b"value", b"key", 5)])


@pytest.mark.skipif(apache_kafka.why_missing() is not None, reason=str(apache_kafka.why_missing()))
def test_generated_produce_batches_are_answered_and_stored_as_by_apache_kafka(tmp_path: Path) -> None:
    judge = run(tmp_path, drawn(400, 11), lambda text: None)

    assert judge.differences == []
    assert judge.errors["NONE"] > 100
    assert len(judge.errors) > 5
    assert len(judge.kinds) > 60


def test_batch_comparison_ignores_compressed_bytes_and_compares_the_records() -> None:
    records = [NewRecord(b"value" * 100, b"key", 5)]
    one, other = (build_batch(records, Codec.GZIP, level=level) for level in (1, 9))
    assert one != other
    assert stored_difference("plain", one, other) is None
    assert (
        stored_difference("plain", one, build_batch([NewRecord(b"x", b"key", 5)], Codec.GZIP)) == "the records differ"
    )
    late = build_batch([NewRecord(b"value", b"key", 6)])
    assert "base_timestamp is 5" in str(stored_difference("plain", BATCH, late))


def test_batch_comparison_reports_an_error_without_an_explaining_rule_as_a_difference() -> None:
    sent = Sent("batch", "plain", 9, BATCH)
    assert known_difference(sent, Answer(ErrorCode.INVALID_RECORD), Answer(ErrorCode.NONE)) is None
    assert known_difference(sent, Answer(ErrorCode.NONE), Answer(ErrorCode.CORRUPT_MESSAGE)) is None
    assert known_difference(sent, Answer(ErrorCode.INVALID_RECORD), Answer(ErrorCode.UNKNOWN_SERVER_ERROR)) is not None
