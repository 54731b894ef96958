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
    content = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    padded = np.concatenate([content, np.zeros(4, np.uint8)])  # the last word of a key may pass the end
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    longer = np.flatnonzero(lengths >= 4)
    step = 0
    while longer.size:
        word = _words(padded, starts[longer] + 4 * step) * _MULTIPLIER
        word = (word ^ word >> np.uint32(24)) * _MULTIPLIER
        hashes[longer] = hashes[longer] * _MULTIPLIER ^ word
        step += 1
        longer = longer[lengths[longer] >= 4 * (step + 1)]
    tails = lengths & 3
    ragged = np.flatnonzero(tails)
    mask = (np.uint32(1) << (8 * tails[ragged]).astype(np.uint32)) - np.uint32(1)
    tail = _words(padded, starts[ragged] + (lengths[ragged] & ~3)) & mask
    hashes[ragged] = (hashes[ragged] ^ tail) * _MULTIPLIER
    hashes = (hashes ^ hashes >> np.uint32(13)) * _MULTIPLIER
    return hashes ^ hashes >> np.uint32(15)


def _words(content: npt.NDArray[np.uint8], at: Longs) -> Words:
    """The little-endian words of 32 bits at these positions."""
    word = content[at].astype(np.uint32)
    for byte in range(1, 4):
        word |= content[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


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
