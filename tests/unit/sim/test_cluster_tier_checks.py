"""What the tier of whole nodes takes for read, and for lost with the power."""

import pytest
from tests.unit.log.support import batch

from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.clients.consumer import records_from
from klamm.sim.cluster_tier.history import TierHistory
from klamm.sim.cluster_tier.trace import PowerLost
from klamm.sim.history.history import History
from klamm.wire.records import CorruptRecords

ORDERS = TopicPartition("orders", 0)


def damaged(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def test_records_before_a_damaged_batch_are_read_first() -> None:
    second = damaged(batch("b", base_offset=1))

    assert records_from(batch("a") + second, 0) == ((0, b"a"),)
    with pytest.raises(CorruptRecords, match="batch at offset 1: its CRC"):
        records_from(second, 1)


def test_batch_that_replaced_another_is_exposed_when_power_loss_brings_the_other_back() -> None:
    """The log may end where it did, or later: the records of the newer leader epoch are gone all the same."""
    history = TierHistory(History(), {})

    history.on_power_lost(PowerLost(1, {ORDERS: 5}, {ORDERS: 2}, {ORDERS: 2}))

    assert history.exposed == {ORDERS: 2}
