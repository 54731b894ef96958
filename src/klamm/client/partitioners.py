"""Which partition a record with a key goes to. Source: BuiltInPartitioner.java, Utils.murmur2; rdkafka_msg.c."""

import zlib
from collections.abc import Callable, Mapping
from typing import Final

_MASK: Final = 0xFFFF_FFFF
_SEED: Final = 0x9747_B28C
_MULTIPLIER: Final = 0x5BD1_E995

Partitioner = Callable[[bytes, int], int]
"""(key, number of partitions) -> partition."""


def murmur2(data: bytes) -> int:
    """MurmurHash2 of 32 bits with Kafka's seed, as an unsigned number."""
    length = len(data)
    whole = length & ~3
    h = (_SEED ^ length) & _MASK
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        k = (k ^ k >> 24) * _MULTIPLIER & _MASK
        h = (h * _MULTIPLIER & _MASK) ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    h = (h ^ h >> 13) * _MULTIPLIER & _MASK
    return h ^ h >> 15


def by_murmur2(key: bytes, partitions: int) -> int:
    """The partition that Apache Kafka's Java client chooses for the key."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def by_crc32(key: bytes, partitions: int) -> int:
    """The partition that librdkafka and kcat choose for the key."""
    return zlib.crc32(key) % partitions


PARTITIONERS: Final[Mapping[str, Partitioner]] = {"murmur2": by_murmur2, "crc32": by_crc32}
