"""Waiting requests for one broker are merged, and never overtake requests that they depend on."""

from typing import Any

import pytest
from tests.support.controller_room import words
from tests.unit.controller.request_scene import Scene, lisr, registered, stop, umr, waiting

from klamm.controller.control_requests import (
    ControlItem,
    LeaderAndIsrItem,
    UpdateMetadataItem,
)
from klamm.controller.pending import MAX_UNMERGED_REQUESTS, MERGE_STEP_PARTITIONS, MIN_OVERTAKEN, PendingRequests
from klamm.controller.sent_states import metadata_state
from klamm.controller.steps import REQUEST_PARTITIONS


def test_queued_leader_and_isr_requests_merge_to_the_newest_state_and_keep_is_new() -> None:
    scene = Scene(partitions=2)
    first, second = scene.partitions
    items: list[ControlItem] = [lisr(scene, first, is_new=True, cause="1"), umr(scene, first, cause="1")]
    scene.lead(first, 2, epoch=1)
    items += [lisr(scene, first, second, cause="2"), umr(scene, first, cause="2")]

    assert waiting(items) == ["LISR a-0=2/[1,2]/1/4+new a-1=1/[1,2]/0/4", "UMR a-0=2/[1,2]/1/4"]


def test_a_merged_control_request_names_the_last_events_that_caused_the_requests() -> None:
    scene = Scene()
    merged = umr(scene, cause="0")
    for number in range(1, 20):
        merged = merged.merge(umr(scene, cause=str(number)))

    assert merged.causes == tuple(map(str, range(12, 20)))


def test_a_queued_leader_and_isr_does_not_overtake_a_changed_broker_list() -> None:
    scene = Scene()
    [p] = scene.partitions
    items: list[ControlItem] = [lisr(scene, p), umr(scene, p)]
    scene.context.add_brokers([registered(4)])
    scene.lead(p, 4, epoch=1)
    items += [umr(scene), lisr(scene, p), umr(scene, p)]

    assert waiting(items) == ["LISR a-0=1/[1,2]/0/4", "UMR a-0=4/[1,2]/1/4", "LISR a-0=4/[1,2]/1/4"]


def test_a_small_leader_and_isr_request_stays_small() -> None:
    scene = Scene(partitions=3)
    items = [lisr(scene, p) for p in scene.partitions]
    for item in items:
        item.max_partitions = 2

    assert [len(r.split()) - 1 for r in waiting([*items, umr(scene)]) if r.startswith("LISR")] == [2, 1]


def test_a_queued_leader_and_isr_does_not_overtake_a_stop_replica() -> None:
    scene = Scene()
    [p] = scene.partitions
    items: list[ControlItem] = [lisr(scene, p), stop(scene, p)]
    scene.lead(p, 2, epoch=1)
    items.append(lisr(scene, p))

    assert waiting(items) == ["LISR a-0=1/[1,2]/0/4", "SR a-0@0", "LISR a-0=2/[1,2]/1/4"]


def test_brokers_with_the_same_queued_requests_share_the_merged_requests() -> None:
    scene = Scene()
    older, newer = umr(scene), umr(scene, *scene.partitions)

    assert older.merge(newer) is older.merge(newer)


def test_a_long_queue_of_large_control_requests_is_compacted_in_steps() -> None:
    scene = Scene(partitions=3)
    first, second, third = scene.partitions
    big = {p: metadata_state(scene.context, p, brief=True) for p in (first, second)}
    pending = PendingRequests()
    for number in range(MAX_UNMERGED_REQUESTS + 1):
        assert len(pending) == number
        pending.put(UpdateMetadataItem(_Sized(big), (str(number),), 1))
    pieces = (MAX_UNMERGED_REQUESTS + 1) * REQUEST_PARTITIONS // MERGE_STEP_PARTITIONS
    for number in range(pieces):
        assert len(pending) == MAX_UNMERGED_REQUESTS + 1 + number
        pending.put(UpdateMetadataItem(_Sized(big), (str(number),), 1))
    assert len(pending) == 1 + pieces  # what came meanwhile stands behind

    pending = PendingRequests()
    pending.put(stop(scene, third))
    for _ in range(MAX_UNMERGED_REQUESTS):
        pending.put(LeaderAndIsrItem(_Sized(lisr(scene, first).states), ("c",), 1))
    assert [words(pending.take()) for _ in range(2)] == ["SR a-2@0", "LISR a-0=1/[1,2]/0/4"]


def test_the_parts_of_a_split_update_metadata_request_are_not_compacted() -> None:
    pending, send_group = PendingRequests(), object()
    for number in range(MAX_UNMERGED_REQUESTS + 1):
        pending.put(UpdateMetadataItem(_Unseen(), (str(number),), 1, send_group=send_group))

    assert [pending.take().causes for _ in range(len(pending))] == [(str(n),) for n in range(MAX_UNMERGED_REQUESTS + 1)]


class _Unseen(dict[Any, Any]):
    """States that must not be looked at."""

    def __len__(self) -> int:
        return REQUEST_PARTITIONS

    def items(self) -> Any:
        raise AssertionError("nobody need look")


class _Sized(dict[Any, Any]):
    """States that report a size too large for merging."""

    def __len__(self) -> int:
        return REQUEST_PARTITIONS


def test_compaction_of_queued_requests_does_not_merge_across_a_large_stop_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("klamm.controller.pending.REQUEST_PARTITIONS", 1)
    scene = Scene(partitions=MAX_UNMERGED_REQUESTS)
    pending = PendingRequests()
    for p in scene.partitions:
        pending.put(stop(scene, p))
    pending.put(umr(scene, scene.partitions[0]))

    texts = [words(pending.take()) for _ in range(len(pending))]
    assert texts == [*(f"SR {p}@0" for p in scene.partitions), "UMR a-0=1/[1,2]/0/4"]


def test_update_metadata_requests_of_different_partitions_are_not_merged_and_all_brokers_share_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("klamm.controller.pending.REQUEST_PARTITIONS", 1)
    scene = Scene(partitions=100)
    items = [umr(scene, p) for p in scene.partitions]
    pending = PendingRequests()
    for item in items:
        pending.put(item)

    assert [pending.take() for _ in range(len(pending))] == items


# ---- elected leaders of a new controller


def after_a_failover(scene: Scene, *, metadata: int, sent_before: bool = True) -> PendingRequests:
    """The queue of a broker that got its LeaderAndIsr and a part of the metadata; so many other parts wait."""
    pending = PendingRequests()
    if sent_before:
        pending.put(umr(scene))
        pending.put(lisr(scene, *scene.partitions))
        pending.take()
        pending.take()
    for _ in range(metadata):
        put_metadata(scene, pending)
    return pending


def put_metadata(scene: Scene, pending: PendingRequests, *, deletes: bool = False) -> None:
    """Queue an UpdateMetadata that is too large to be merged."""
    states = {p: metadata_state(scene.context, p, brief=True) for p in scene.partitions}
    pending.put(UpdateMetadataItem(_Sized(states), ("c",), scene.context.broker_list_version, deletes))


def kinds(pending: PendingRequests) -> list[str]:
    """The kinds of the waiting requests, in the order in which they are sent."""
    return [words(pending.take()).split()[0] for _ in range(len(pending))]


def test_an_elected_leader_is_told_before_much_waiting_metadata() -> None:
    scene = Scene(partitions=2)
    pending = after_a_failover(scene, metadata=MIN_OVERTAKEN)
    for p in scene.partitions:
        pending.put(lisr(scene, p))

    assert kinds(pending) == ["LISR", *["UMR"] * MIN_OVERTAKEN]


def test_little_waiting_metadata_is_not_overtaken() -> None:
    scene = Scene()
    pending = after_a_failover(scene, metadata=MIN_OVERTAKEN - 1)
    pending.put(lisr(scene, *scene.partitions))

    assert kinds(pending) == [*["UMR"] * (MIN_OVERTAKEN - 1), "LISR"]


def test_the_first_leader_and_isr_of_a_broker_overtakes_no_metadata() -> None:
    scene = Scene()
    pending = after_a_failover(scene, metadata=9, sent_before=False)
    pending.put(lisr(scene, *scene.partitions))

    assert kinds(pending) == [*["UMR"] * 9, "LISR"]


@pytest.mark.parametrize(("newer", "overtaken"), [(MIN_OVERTAKEN, 0), (9, 8)])
def test_a_leader_and_isr_never_overtakes_the_metadata_that_brings_its_broker_list(newer: int, overtaken: int) -> None:
    scene = Scene()
    pending = after_a_failover(scene, metadata=3)
    scene.context.add_brokers([registered(4)])
    for _ in range(newer):
        put_metadata(scene, pending)
    pending.put(lisr(scene, *scene.partitions))

    assert kinds(pending) == [*["UMR"] * (3 + newer - overtaken), "LISR", *["UMR"] * overtaken]


def test_a_leader_and_isr_never_overtakes_metadata_that_deletes_a_topic() -> None:
    scene = Scene()
    pending = after_a_failover(scene, metadata=3)
    put_metadata(scene, pending, deletes=True)
    for _ in range(5):
        put_metadata(scene, pending)
    pending.put(lisr(scene, *scene.partitions))

    assert kinds(pending) == [*["UMR"] * 4, "LISR", *["UMR"] * 5]


def test_a_leader_and_isr_never_overtakes_a_stop_replica_behind_which_metadata_waits() -> None:
    scene = Scene()
    pending = after_a_failover(scene, metadata=0)
    pending.put(stop(scene, scene.partitions[0]))
    for _ in range(5):
        put_metadata(scene, pending)
    pending.put(lisr(scene, *scene.partitions))

    assert kinds(pending) == ["SR", "LISR", *["UMR"] * 5]
