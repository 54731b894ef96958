"""Compaction of messages in the formats 0 and 1, as logs of old brokers have them.

Source: MemoryRecords.java (filterTo), LogCleaner.scala (shouldRetainRecord).

A message keeps its format, and a compressed one its codec. Tombstones of these formats have no delete horizon: they go
once the segment is older, by its modification time, than the last segment of the clean part less `delete.retention.ms`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from klamm.log.cleaner.batches import FilterCounts, WrittenBatch
from klamm.log.cleaner.key_hashes import hash_each
from klamm.log.cleaner.offset_map import OffsetMap
from klamm.log.runs import LegacyRun
from klamm.wire.compression import Codec
from klamm.wire.records import BatchHeader
from klamm.wire.records.batch import LOG_APPEND_TIME_BIT
from klamm.wire.records.legacy import Message, encode_messages, is_compressed, messages_of
from klamm.wire.unfolding import MAX_OUTPUT_BYTES
from klamm.wire.vectors.groups import GROUP_BYTES


class Entry(NamedTuple):
    """A message of the log, and the messages in it: itself, or those that it wraps."""

    header: BatchHeader
    messages: list[Message]


def add_legacy_run(offset_map: OffsetMap, run: LegacyRun, start: int) -> bool:
    """Add the keys of the run to the map, from offset `start` on; returns whether all of them fit.

    Where they do not, as many messages as fit are added. Raises CorruptRecords.
    """
    for entries in _entry_groups(run):
        if not _add_keys(offset_map, entries, start) and not all(_add_keys(offset_map, [e], start) for e in entries):
            return False
    return True


def _entry_groups(run: LegacyRun) -> Iterator[list[Entry]]:
    """Decode the messages of the run, in groups of about GROUP_BYTES after decompression. Raises CorruptRecords."""
    entries: list[Entry] = []
    size = 0
    for header in run.headers:
        messages = list(messages_of(run.buffer, header, MAX_OUTPUT_BYTES))
        entries.append(Entry(header, messages))
        size += sum(len(each.key or b"") + len(each.value or b"") for each in messages)
        if size >= GROUP_BYTES:
            yield entries
            entries, size = [], 0
    if entries:
        yield entries


def _add_keys(offset_map: OffsetMap, entries: list[Entry], start: int) -> bool:
    """Add the keys of these messages to the map, all or none; returns whether they fit."""
    keyed = [(m.key, m) for e in entries for m in e.messages if m.key is not None and m.offset >= start]
    offsets = np.array([message.offset for _, message in keyed], np.int64)
    tombstones = np.array([message.value is None for _, message in keyed], np.bool_)
    if not offset_map.add(hash_each([key for key, _ in keyed]), offsets, tombstones):
        return False
    offset_map.latest_offset = max(offset_map.latest_offset, entries[-1].header.last_offset)
    return True


def filter_legacy(
    run: LegacyRun, offset_map: OffsetMap, counts: FilterCounts, *, keeps_tombstones: bool
) -> Iterator[WrittenBatch]:
    """The messages of the run that are kept, in order; a wrapper of which some records are removed is written again.

    Raises CorruptRecords.
    """
    for entries in _entry_groups(run):
        keys = [message.key for entry in entries for message in entry.messages if message.key is not None]
        latest = iter(offset_map.get(hash_each(keys)).tolist())
        for entry in entries:
            kept = []
            for message in entry.messages:
                latest_of_key = None if message.key is None else next(latest)
                if message.offset <= offset_map.latest_offset:
                    counts.keyless_records += latest_of_key is None
                    is_latest = latest_of_key is not None and message.offset >= latest_of_key
                    if not is_latest or (message.value is None and not keeps_tombstones):
                        continue
                kept.append(message)
            counts.read_records += len(entry.messages)
            counts.written_records += len(kept)
            if kept:
                yield _rewritten(run, entry, kept)


def _rewritten(run: LegacyRun, entry: Entry, kept: list[Message]) -> WrittenBatch:
    """The message unchanged if all of its records are kept, else a new one that wraps the kept records.

    A new one is also written where the formats of wrapper and wrapped differ, which old brokers wrote (KAFKA-4298).
    """
    header = entry.header
    first, last = kept[0].offset, kept[-1].offset
    if len(kept) == len(entry.messages) and all(message.magic == header.magic for message in kept):
        content = run.buffer[header.position : header.position + header.size]
        return WrittenBatch(content, first, header.last_offset, header.max_timestamp)
    codec = header.codec if is_compressed(header) else Codec.NONE
    is_append_time = bool(header.magic and header.attributes & LOG_APPEND_TIME_BIT)
    content = encode_messages(kept, header.magic, codec, header.max_timestamp if is_append_time else None)
    times = [header.max_timestamp] if is_append_time or not header.magic else [message.timestamp for message in kept]
    return WrittenBatch(content, first, last, max(times))
