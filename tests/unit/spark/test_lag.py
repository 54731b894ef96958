"""Lag from what Spark reports, also beside sources of other formats."""

import json
import uuid
from typing import Any

from klamm.client.cluster import ClusterMetadata
from klamm.model.cluster import Address
from klamm.model.ids import TopicPartition
from klamm.spark.group_offsets import commit_offsets
from klamm.spark.lag import metrics, progress_of
from klamm.spark.stream_offsets import StreamOffset, to_json
from klamm.wire.messages import FindCoordinatorResponse

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


def test_the_positions_of_a_streaming_query_are_committed_with_their_leader_epochs() -> None:
    end = StreamOffset("c1", {"orders": uuid.UUID(int=1)}, {P0: 5, P1: 9}, {}, epochs={P0: 3})
    progress = progress_of([{"endOffset": json.dumps(to_json(end)), "latestOffset": None}])
    assert progress is not None
    asked: list[Any] = []
    steps = commit_offsets(ClusterMetadata([Address("one", 1)], lambda: 0.0), "lag", progress.read)

    asked.append(next(steps))
    asked.append(steps.send(FindCoordinatorResponse(host="two", port=2, coordinators=[])))

    sent = asked[1].request.body(8).topics[0].partitions
    assert [(p.committed_offset, p.committed_leader_epoch) for p in sent] == [(5, 3), (9, -1)]


def test_lag_metrics_are_labelled_with_query_topic_and_partition() -> None:
    progress = progress_of([{"endOffset": reported({P0: 5}), "latestOffset": reported({P0: 6})}])

    found = {(s.name, *s.labels.values()): s.value for m in metrics("q", progress, 40, 250.0) for s in m.samples}

    assert found == {
        ("klamm_spark_lag", "q", "orders", "0"): 1,
        ("klamm_spark_next_offset", "q", "orders", "0"): 5,
        ("klamm_spark_rows_total", "q"): 40,
        ("klamm_spark_batch_seconds", "q"): 0.25,
    }
