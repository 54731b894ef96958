"""Which partition each row goes to, as vectors: Kafka's murmur2 of the key, and batches in turn for rows without a key.

Source: BuiltInPartitioner.java (KIP-794), Utils.murmur2.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from klamm.spark.record_encoder import Longs, lengths_of

Words = npt.NDArray[np.uint32]

_SEED: Final = 0x9747_B28C
_MULTIPLIER: Final = np.uint32(0x5BD1_E995)
_POSITIVE: Final = 0x7FFF_FFFF


def murmur2_of(keys: pa.BinaryArray) -> Words:
    """MurmurHash2 of each key with Kafka's seed; the result for null has no meaning."""
    lengths = lengths_of(keys).clip(0)
    starts = np.frombuffer(keys.buffers()[1], np.int32, len(keys) + 1, offset=4 * keys.offset)[:-1].astype(np.int64)
    words = _words_at_every_byte(keys.buffers()[2] or b"")
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    shortest = int(lengths.min()) if len(lengths) else 0
    for at in range(0, shortest & ~3, 4):  # all keys have these words
        hashes = hashes * _MULTIPLIER ^ _mixed(words[starts + at])
    at = shortest & ~3
    longer = np.flatnonzero(lengths >= at + 4)
    while longer.size:
        hashes[longer] = hashes[longer] * _MULTIPLIER ^ _mixed(words[starts[longer] + at])
        at += 4
        longer = longer[lengths[longer] >= at + 4]
    tails = lengths & 3
    mask = (np.uint32(1) << (8 * tails).astype(np.uint32)) - np.uint32(1)
    tail = words[starts + (lengths & ~3)] & mask
    hashes = np.where(tails > 0, (hashes ^ tail) * _MULTIPLIER, hashes)
    hashes = (hashes ^ hashes >> np.uint32(13)) * _MULTIPLIER
    return hashes ^ hashes >> np.uint32(15)


def _mixed(words: Words) -> Words:
    """Scramble each word of 4 bytes as murmur2 does before it combines the word with the hash."""
    words = words * _MULTIPLIER
    return (words ^ words >> np.uint32(24)) * _MULTIPLIER


def _words_at_every_byte(content: "pa.Buffer | bytes") -> Words:
    """The little-endian word of 32 bits at each byte of the content, and at its end."""
    padded = bytes(content) + bytes(4)  # the last word of a key may pass the end
    return np.ndarray((len(padded) - 3,), np.dtype("<u4"), padded, strides=(1,))


def partitions_by_key(keys: pa.BinaryArray, count: int) -> Longs:
    """The partition of each key, of `count`, as Kafka's Java producer chooses it."""
    return (murmur2_of(keys).astype(np.int64) & _POSITIVE) % count


class StickyPartitions:
    """Partitions for rows without a key: one until a batch is full, then the next one.

    A task begins at a partition that its number gives, so that a task that is run again chooses the same.
    """

    def __init__(self, task: int, batch_bytes: int) -> None:
        self._first = task
        self._batch_bytes = batch_bytes
        self._bytes: dict[str, int] = {}
        """What was written so far without a key, by topic."""

    def choose(self, topic: str, sizes: Longs, count: int) -> Longs:
        """The partition of each row, of `count`, where the rows have these sizes."""
        before = self._bytes.get(topic, 0)
        ends = before + np.cumsum(sizes)
        if len(ends):
            self._bytes[topic] = int(ends[-1])
        return (self._first + (ends - sizes) // self._batch_bytes) % count
