"""What stands in the checkpoint: equal text for equal offsets, and where batch 0 began."""

import json
import uuid

import pytest

from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import id_to_text
from klamm.spark.errors import BadOption
from klamm.spark.stream_offsets import StreamOffset, from_json, to_json
from klamm.spark.stream_plan import plan_micro_batch

OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)


def p(number: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, number)


def offset(
    positions: dict[TopicPartition, int],
    first: dict[TopicPartition, int] | None = None,
    topic_id: uuid.UUID = OLD,
    initial: bool = False,
) -> StreamOffset:
    return StreamOffset("c1", {"orders": topic_id}, positions, first or {}, initial)


def planned(start: StreamOffset, end: StreamOffset) -> list[tuple[str, int, int]]:
    return [(str(r.topic_partition), r.start, r.end) for r in plan_micro_batch(start, end).ranges]


def test_stream_offsets_are_serialized_sorted_by_topic_and_partition_number() -> None:
    mixed = {p(10): 3, p(2): 4, p(0, "a.b"): 1}
    text = json.dumps(to_json(offset(mixed)))

    assert text == (
        '{"version": 1, "cluster": "c1", "topics": {"a.b": {"id": null, "next": {"0": 1}}, '
        f'"orders": {{"id": "{id_to_text(OLD)}", "next": {{"2": 4, "10": 3}}}}}}}}'
    )
    assert json.dumps(to_json(offset(dict(reversed(mixed.items()))))) == text


@pytest.mark.parametrize("initial", [True, False])
def test_a_stream_offset_is_unchanged_after_writing_and_reading_the_checkpoint(initial: bool) -> None:
    stored = offset({p(0): 5, p(1): 6}, {p(1): 2}, initial=initial)

    assert from_json(json.loads(json.dumps(to_json(stored)))) == stored


@pytest.mark.parametrize("text", ['{"orders": {"0": 5}}', '{"version": 2}', '{"version": 1, "topics": 7}', "[]"])
def test_a_checkpointed_stream_offset_of_another_format_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(BadOption, match="another checkpointLocation"):
        from_json(json.loads(text))


def test_batch_0_of_a_restarted_stream_begins_at_the_originally_stored_offsets() -> None:
    end = offset({p(0): 50, p(1): 7}, first={p(0): 40, p(1): 7})

    assert planned(offset({p(0): 45, p(1): 90}, initial=True), end) == [("orders-0", 40, 50)]


def test_a_new_partition_is_read_from_the_first_offset_stored_with_its_batch() -> None:
    assert planned(offset({p(0): 10}), offset({p(0): 12, p(1): 9}, first={p(1): 4})) == [
        ("orders-0", 10, 12),
        ("orders-1", 4, 9),
    ]


def test_first_offsets_of_new_partitions_stored_with_an_earlier_batch_are_ignored() -> None:
    start = offset({p(0): 50}, first={p(0): 40})

    assert planned(start, offset({p(0): 60}, first={p(0): 40})) == [("orders-0", 50, 60)]


def test_a_stream_reads_a_recreated_topic_from_its_beginning_and_reports_the_old_records_lost() -> None:
    plan = plan_micro_batch(offset({p(0): 50}), offset({p(0): 9}, first={p(0): 2}, topic_id=NEW))

    assert [(r.start, r.end, r.topic_id) for r in plan.ranges] == [(2, 9, NEW)]
    (lost,) = plan.lost
    assert lost[:3] == (p(0), 50, None)
    assert f"its id was {id_to_text(OLD)}, now it is {id_to_text(NEW)}" in lost.reason


def test_a_stream_reports_a_deleted_partition_and_a_truncated_log_as_lost_ranges() -> None:
    plan = plan_micro_batch(offset({p(0): 50, p(1): 30}), offset({p(0): 45}))

    assert plan.ranges == []
    assert [(lost.topic_partition, lost.first, lost.end) for lost in plan.lost] == [(p(0), 45, 50), (p(1), 30, None)]
