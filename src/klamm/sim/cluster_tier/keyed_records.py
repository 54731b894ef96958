"""The records of the compacted topic: their keys, which of them are tombstones, and how a tombstone is recognized.

Copies, which copiers send there in transactions, have a key of their own each.

Everywhere in this tier a record is named by a value that no other record has. A tombstone has no value: it has this
name in a header.
"""

from typing import Final

from klamm.wire.records.record import NewRecord, Record

DELETING: Final = "deleting"
"""The beginning of the names of producers that also write tombstones."""
COPY_OF: Final = b"<"
"""In the name of a copy, before the offset of its original."""
_NAME: Final = "name"
_KEYS: Final = 5
_ROUND: Final = 10
_BRIEF: Final = (1, 6)
"""In each round of ten records: a key that no other round has gets a value, and then its tombstone."""
_TOMBSTONES: Final = (6, 7, 9)


def key_of(name: bytes) -> bytes:
    """The key of a keyed producer's record: every tenth has a key of its own, the others have one of five.

    Without the former the newest value of each key would be in the active segment, which is not compacted. A producer
    that deletes also has keys that it writes twice: a value and a tombstone.
    """
    if _is_copy(name):
        return name
    producer, number = _parts(name)
    if number % _ROUND == 0:
        return b"%s/once/%d" % (producer, number)
    if _deletes(producer) and number % _ROUND in _BRIEF:
        return b"%s/brief/%d" % (producer, number // _ROUND)
    return b"%s/%d" % (producer, number % _KEYS)


def is_tombstone(name: bytes) -> bool:
    """Whether the record deletes its key."""
    if _is_copy(name):
        return False
    producer, number = _parts(name)
    return _deletes(producer) and number % _ROUND in _TOMBSTONES


def may_delete(name: bytes) -> bool:
    """Whether the producer of the record also writes tombstones."""
    return not _is_copy(name) and _deletes(_parts(name)[0])


def keyed_record(name: bytes, timestamp: int) -> NewRecord:
    """The record of this name, as a keyed producer sends it; `timestamp` in ms."""
    if is_tombstone(name):
        return NewRecord(None, key_of(name), timestamp, ((_NAME, name),))
    return NewRecord(name, key_of(name), timestamp)


def record_without_key(name: bytes, timestamp: int) -> NewRecord:
    """The record of this name, as other producers send it; `timestamp` in ms."""
    return NewRecord(name, None, timestamp)


def name_of(record: Record) -> bytes:
    """What tells the record from every other: its value, for a tombstone a header; empty where it has neither."""
    if record.value is not None:
        return record.value
    return next((value for key, value in record.headers if key == _NAME and value is not None), b"")


def _is_copy(name: bytes) -> bool:
    """Whether a copier sent the record."""
    return COPY_OF in name


def _parts(name: bytes) -> tuple[bytes, int]:
    """The producer in the name of a record, and the number that the producer gave it."""
    producer, _, text = name.rstrip(b".").partition(b"/")
    return producer, int(text)


def _deletes(producer: bytes) -> bool:
    """Whether the producer writes tombstones."""
    return producer.startswith(DELETING.encode())
