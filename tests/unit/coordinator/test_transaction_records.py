"""Records of `__transaction_state` byte for byte, as Apache Kafka 3.9 in ZooKeeper mode writes them."""

import pytest

from klamm.coordinator.transactions.records import (
    read_key,
    read_value,
    transaction_key,
    transaction_value,
)
from klamm.coordinator.transactions.states import COMPLETE_COMMIT, EMPTY, ONGOING
from klamm.coordinator.transactions.transaction import Transition
from klamm.coordinator.versioned_records import UnknownRecord
from klamm.model.ids import TopicPartition
from klamm.wire.messages import TransactionLogValue

TRANSITION = Transition(
    ONGOING,
    7,
    -1,
    2,
    1,
    60_000,
    frozenset((TopicPartition("b", 1), TopicPartition("a", 3), TopicPartition("b", 0))),
    1_000,
    2_000,
)
PRODUCER = "000000000000000700020000ea60"
TIMES = "00000000000007d000000000000003e8"


def test_the_key_of_a_transaction_state_record_is_version_0_and_the_transactional_id() -> None:
    assert transaction_key("copy").hex() == "0000" + "0004" + b"copy".hex()
    assert read_key(transaction_key("copy")) == "copy"


def test_the_value_of_a_transaction_state_record_has_version_0_and_partitions_by_topic() -> None:
    partitions = "000000020001610000000100000003000162000000020000000000000001"
    assert transaction_value(TRANSITION).hex() == "0000" + PRODUCER + "01" + partitions + TIMES


@pytest.mark.parametrize(
    ("state", "number", "partitions"), [(EMPTY, "00", "ffffffff"), (COMPLETE_COMMIT, "04", "0" * 8)]
)
def test_a_transaction_record_has_null_partitions_only_in_the_empty_state(
    state: object, number: str, partitions: str
) -> None:
    value = transaction_value(TRANSITION._replace(state=state, partitions=frozenset()))  # type: ignore[arg-type]
    assert value.hex() == "0000" + PRODUCER + number + partitions + TIMES


def test_a_decoded_transaction_record_has_no_previous_producer_epoch() -> None:
    read = read_value("copy", transaction_value(TRANSITION))

    assert (read.transactional_id, read.producer_id, read.epoch, read.timeout_ms) == ("copy", 7, 2, 60_000)
    assert (read.state, read.partitions, read.start_ms, read.updated_ms) == (
        ONGOING,
        TRANSITION.partitions,
        1_000,
        2_000,
    )
    assert (read.last_producer_id, read.last_epoch, read.pending) == (-1, -1, None)


def test_a_transaction_value_of_the_flexible_version_is_decoded() -> None:
    value = TransactionLogValue(7, 2, 60_000, 0, None, 2_000, -1)
    assert read_value("copy", b"\0\1" + value.encode(1)).state is EMPTY


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\2" + b"\0" * 40, b"\0\0" + b"\0" * 5])
def test_a_malformed_value_of_a_transaction_state_record_is_refused(value: bytes) -> None:
    with pytest.raises(UnknownRecord):
        read_value("copy", value)


def test_a_transaction_value_with_an_unknown_state_is_refused() -> None:
    with pytest.raises(UnknownRecord, match="state 8"):
        read_value("copy", b"\0\0" + TransactionLogValue(7, 2, 60_000, 8, None, 2_000, -1).encode(0))


def test_a_transaction_key_of_an_unknown_version_is_ignored() -> None:
    assert read_key(b"\0\1whatever") is None
