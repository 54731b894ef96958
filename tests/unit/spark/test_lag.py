"""Lag from what Spark reports, also beside sources of other formats."""

import json
import uuid

from klamm.model.ids import TopicPartition
from klamm.spark.lag import metrics, progress_of
from klamm.spark.stream_offsets import StreamOffset, to_json

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def reported(next_offsets: dict[TopicPartition, int]) -> str:
    return json.dumps(to_json(StreamOffset("c1", {"orders": uuid.UUID(int=1)}, next_offsets, {})))


def test_the_lag_of_a_streaming_query_is_log_end_minus_next_offset() -> None:
    progress = progress_of([{"endOffset": reported({P0: 5, P1: 9}), "latestOffset": reported({P0: 12, P1: 9})}])

    assert progress is not None
    assert progress.lag == {P0: 7, P1: 0}


def test_a_streaming_source_of_another_format_has_no_lag() -> None:
    assert progress_of([{"endOffset": '{"orders": {"0": 5}}', "latestOffset": None}, {"endOffset": None}]) is None
    assert progress_of([{"endOffset": "7"}, {"endOffset": '{"cluster": "c1"}'}]) is None


def test_the_lag_is_read_from_offsets_given_as_json_object_or_as_text() -> None:
    progress = progress_of([{"endOffset": json.loads(reported({P0: 5})), "latestOffset": reported({P0: 6})}])

    assert progress is not None
    assert progress.lag == {P0: 1}


def test_lag_metrics_are_labelled_with_query_topic_and_partition() -> None:
    progress = progress_of([{"endOffset": reported({P0: 5}), "latestOffset": reported({P0: 6})}])

    found = {(s.name, *s.labels.values()): s.value for m in metrics("q", progress, 40, 250.0) for s in m.samples}

    assert found == {
        ("klamm_spark_lag", "q", "orders", "0"): 1,
        ("klamm_spark_next_offset", "q", "orders", "0"): 5,
        ("klamm_spark_rows_total", "q"): 40,
        ("klamm_spark_batch_seconds", "q"): 0.25,
    }
