"""What the tier of whole nodes takes for a record that the log cleaner must not remove or move."""

from types import SimpleNamespace
from typing import Any

import pytest

from klamm.sim.cluster_tier.history import COMPACTED, TierHistory
from klamm.sim.cluster_tier.invariants.compaction import key_of, newest_values_survive_compaction
from klamm.sim.cluster_tier.invariants.rest import FinalRead
from klamm.sim.history.history import History

# the values 1 and 6 have the same key, and 2 has another one
ACKNOWLEDGED = {b"keyed-1/1": 0, b"keyed-1/2": 1, b"keyed-1/6": 2}
READS = {
    "nothing was removed": ([(0, b"keyed-1/1"), (1, b"keyed-1/2"), (2, b"keyed-1/6")], False),
    "an older value was removed": ([(1, b"keyed-1/2"), (2, b"keyed-1/6")], False),
    "a newer value without an acknowledgement is there": ([(1, b"keyed-1/2"), (3, b"keyed-1/11")], False),
    "the newest value was removed": ([(0, b"keyed-1/1"), (1, b"keyed-1/2")], True),
    "a key was removed": ([(2, b"keyed-1/6")], True),
    "a record has another offset": ([(0, b"keyed-1/2"), (2, b"keyed-1/6")], True),
    "records are out of order": ([(2, b"keyed-1/6"), (1, b"keyed-1/2")], True),
}


def resting(records: list[tuple[int, bytes]], error: str = "") -> Any:
    """A cluster at rest that acknowledged three records of the compacted topic, of which these were read."""
    history, read = TierHistory(History(), {}), FinalRead()
    history.acknowledged[COMPACTED] = dict(ACKNOWLEDGED)
    read.records, read.error = records, error
    return SimpleNamespace(tier=history, compacted_reads={COMPACTED: read})


@pytest.mark.parametrize(("records", "is_violation"), READS.values(), ids=READS)
def test_compaction_that_loses_the_newest_value_of_a_key_or_moves_a_record_is_a_violation(
    records: list[tuple[int, bytes]], is_violation: bool
) -> None:
    cluster = resting(records)

    assert (newest_values_survive_compaction(cluster) is not None) is is_violation
    cluster.tier.on_destroyed(COMPACTED, 0)
    assert newest_values_survive_compaction(cluster) is None


def test_a_compacted_topic_that_cannot_be_read_at_rest_is_a_violation() -> None:
    assert newest_values_survive_compaction(resting([], "no leader")) is not None


@pytest.mark.parametrize("is_destroyed", [True, False])
@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_compacted_topic_may_be_unreadable_at_rest_only_where_a_bit_flipped(
    is_damaged: bool, is_destroyed: bool
) -> None:
    cluster = resting([], "a Fetch is answered CORRUPT_MESSAGE" if is_damaged else "no leader")
    cluster.compacted_reads[COMPACTED].is_damaged = is_damaged
    if is_destroyed:
        cluster.tier.on_destroyed(COMPACTED, 35)

    assert (newest_values_survive_compaction(cluster) is None) is (is_damaged and is_destroyed)


def test_keyed_producers_have_five_keys_each_and_some_that_they_write_once() -> None:
    assert key_of(b"keyed-1/7..") == key_of(b"keyed-1/12") != key_of(b"keyed-2/7")
    assert key_of(b"keyed-1/10") != key_of(b"keyed-1/20")
