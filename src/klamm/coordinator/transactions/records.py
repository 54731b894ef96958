"""The records of `__transaction_state`, byte for byte. Source: TransactionLog.scala (3.9), its message schemas."""

import struct
from typing import Final

from klamm.coordinator.transactions.states import BY_ID, EMPTY, STATE_IDS
from klamm.coordinator.transactions.transaction import Partitions, Transaction, Transition
from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition
from klamm.wire.errors import WireError
from klamm.wire.messages import PartitionsSchema, TransactionLogKey, TransactionLogValue

_VERSION: Final = struct.Struct(">h")
_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 0
"""Version 1 needs transaction.version 1, which no cluster in ZooKeeper mode has."""
_NEWEST_VALUE: Final = 1


class UnknownTransactionRecord(KlammError):
    """A record of a version that no 3.9 coordinator writes, or that cannot be decoded."""


def transaction_key(transactional_id: str) -> bytes:
    """Return the encoded key of the transactional id's record."""
    return _VERSION.pack(_KEY_VERSION) + TransactionLogKey(transactional_id).encode(_KEY_VERSION)


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
    return _VERSION.pack(_VALUE_VERSION) + value.encode(_VALUE_VERSION)


def _by_topic(partitions: Partitions) -> list[PartitionsSchema]:
    """Return the partitions grouped by topic, as the record has them."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [PartitionsSchema(topic, tuple(numbers)) for topic, numbers in topics.items()]


def read_key(key: bytes) -> str | None:
    """Decode the transactional id from a record's key; None for another version. Raises UnknownTransactionRecord."""
    version = _version_of(key)
    if version != _KEY_VERSION:
        return None
    try:
        return TransactionLogKey.decode(key, version, _VERSION.size).transactional_id
    except WireError as error:
        raise UnknownTransactionRecord(
            f"a key with the record version {version} in __transaction_state cannot be decoded: {error}"
        ) from error


def read_value(transactional_id: str, value: bytes) -> Transaction:
    """Decode the value of a transactional id's record. Raises UnknownTransactionRecord."""
    version = _version_of(value)
    if not 0 <= version <= _NEWEST_VALUE:
        raise UnknownTransactionRecord(f"a value in __transaction_state has the unknown record version {version}")
    try:
        read = TransactionLogValue.decode(value, version, _VERSION.size)
    except WireError as error:
        raise UnknownTransactionRecord(
            f"a value with the record version {version} in __transaction_state cannot be decoded: {error}"
        ) from error
    if not 0 <= read.transaction_status < len(BY_ID) or read.producer_id < 0:
        raise UnknownTransactionRecord(
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


def _version_of(record: bytes) -> int:
    """Return the version that the first two bytes name. Raises UnknownTransactionRecord where there are fewer."""
    if len(record) < _VERSION.size:
        raise UnknownTransactionRecord(
            f"a key or value of {len(record)} bytes in __transaction_state is too short for its version"
        )
    version: int = _VERSION.unpack_from(record)[0]
    return version
