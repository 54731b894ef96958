"""The records of `__transaction_state`, byte for byte. Source: TransactionLog.scala (3.9), its message schemas."""

from typing import Final

from klamm.coordinator.transactions.states import BY_ID, EMPTY, STATE_IDS
from klamm.coordinator.transactions.transaction import Partitions, Transaction, Transition
from klamm.coordinator.versioned_records import UnknownRecord, decode_record, encode_record, version_of
from klamm.model.ids import TopicPartition
from klamm.wire.messages import PartitionsSchema, TransactionLogKey, TransactionLogValue
from klamm.wire.records import NewRecord

_KEY: Final = "a key in __transaction_state"
_VALUE: Final = "a value in __transaction_state"
_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 0
"""Version 1 needs transaction.version 1, which no cluster in ZooKeeper mode has."""
_NEWEST_VALUE: Final = 1


def transaction_key(transactional_id: str) -> bytes:
    """Return the encoded key of the transactional id's record."""
    return encode_record(TransactionLogKey(transactional_id), _KEY_VERSION)


def transaction_value(transition: Transition) -> bytes:
    """Return the encoded value of the record that stores this transition."""
    partitions = None if transition.state is EMPTY else _by_topic(transition.partitions)
    value = TransactionLogValue(
        transition.producer_id,
        transition.epoch,
        transition.timeout_ms,
        STATE_IDS[transition.state],
        partitions,
        transition.updated_ms,
        transition.start_ms,
    )
    return encode_record(value, _VALUE_VERSION)


def transaction_record(transition: Transition, transactional_id: str, now_ms: int) -> NewRecord:
    """Return the record that stores this transition."""
    return NewRecord(transaction_value(transition), transaction_key(transactional_id), now_ms)


def _by_topic(partitions: Partitions) -> list[PartitionsSchema]:
    """Return the partitions grouped by topic, as the record has them."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [PartitionsSchema(topic, tuple(numbers)) for topic, numbers in topics.items()]


def read_key(key: bytes) -> str | None:
    """Decode the transactional id from a record's key; None for another version. Raises UnknownRecord."""
    version = version_of(key, _KEY)
    if version != _KEY_VERSION:
        return None
    return decode_record(TransactionLogKey, key, version, _KEY).transactional_id


def read_value(transactional_id: str, value: bytes) -> Transaction:
    """Decode the value of a transactional id's record. Raises UnknownRecord."""
    version = version_of(value, _VALUE)
    if not 0 <= version <= _NEWEST_VALUE:
        raise UnknownRecord(f"{_VALUE} has the unknown record version {version}")
    read = decode_record(TransactionLogValue, value, version, _VALUE)
    if not 0 <= read.transaction_status < len(BY_ID) or read.producer_id < 0:
        raise UnknownRecord(
            f"the transaction of producer id {read.producer_id} has the unknown state {read.transaction_status}"
        )
    return Transaction(
        transactional_id,
        read.producer_id,
        read.transaction_timeout_ms,
        read.transaction_last_update_timestamp_ms,
        epoch=read.producer_epoch,
        state=BY_ID[read.transaction_status],
        partitions=frozenset(
            TopicPartition(topic.topic, number)
            for topic in read.transaction_partitions or ()
            for number in topic.partition_ids
        ),
        start_ms=read.transaction_start_timestamp_ms,
    )
