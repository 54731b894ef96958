"""What is printed of fetched batches: whole blocks of bytes, with the position behind each."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from klamm.cli.records.record_json import encode_record
from klamm.cli.records.text import Printed
from klamm.client.read_committed import AbortedTransactions, is_abort_marker
from klamm.client.reader import Fetched
from klamm.wire.records import (
    BatchHeader,
    CorruptRecords,
    Record,
    TimestampType,
    batches,
    crc_is_valid,
    records_of_any_format,
)

MAX_BLOCK_BYTES: Final = 256 * 1024
_TIMESTAMP_TYPES: Final = {TimestampType.CREATE_TIME: "create", TimestampType.LOG_APPEND_TIME: "logappend"}
_NO_TIMESTAMP_TYPE: Final = "unknown"
"""Of a message of format 0, which has no timestamp."""
Format = Callable[[Printed], bytes]


class Block(NamedTuple):
    content: bytes
    records: int
    size: int
    """Bytes of keys and payloads."""
    next_position: int
    """Everything before it is in this block or an earlier one, or is not to be printed."""
    leader_epoch: int
    """That of the record before `next_position`."""


class Printer:
    """Turns fetched batches into bytes; `form` None prints JSON lines."""

    def __init__(self, form: Format | None) -> None:
        self._form = form

    def blocks(self, fetched: Fetched, limit: int | None, most: int | None) -> Iterator[Block]:
        """The records from the fetch position on, before offset `limit` and at most `most` of them.

        Raises CorruptRecords, which names the partition.
        """
        position = fetched.position
        transactions = AbortedTransactions(fetched.aborted)
        try:
            for header in batches(fetched.records):
                _check_crc(fetched, header)
                is_abort = partial(is_abort_marker, fetched.records, header)
                is_hidden = transactions.hide(header.last_offset, header.producer_id, header.attributes, is_abort)
                if not (is_hidden or header.is_control):
                    for block in self._batch_blocks(fetched, header, position, limit, most):
                        yield block
                        position = block.next_position
                        if most is not None:
                            most -= block.records
                if most == 0 or (limit is not None and position >= limit):
                    return
                position = max(position, header.next_offset)
        except CorruptRecords as error:
            raise CorruptRecords(f"Cannot decode records of {fetched.partition}: {error}") from error
        yield Block(b"", 0, 0, fetched.next_position, fetched.leader_epoch)

    def _batch_blocks(
        self, fetched: Fetched, header: BatchHeader, position: int, limit: int | None, most: int | None
    ) -> Iterator[Block]:
        """Yield the records of one batch that are to be printed, in blocks."""
        pieces: list[bytes] = []
        length = size = 0
        form = self._json_of(header) if self._form is None else self._form
        topic, number = fetched.partition
        for record in records_of_any_format(fetched.records, header):
            if record.offset < position:
                continue
            if record.offset >= (limit if limit is not None else record.offset + 1):
                break
            pieces.append(form(Printed(topic, number, record)))
            length += len(pieces[-1])
            size += len(record.key or b"") + len(record.value or b"")
            is_last = most is not None and len(pieces) >= most
            if length >= MAX_BLOCK_BYTES or is_last:
                yield Block(b"".join(pieces), len(pieces), size, record.offset + 1, header.partition_leader_epoch)
                if is_last:
                    return
                most = None if most is None else most - len(pieces)
                pieces, length, size = [], 0, 0
        end = header.next_offset if limit is None else min(limit, header.next_offset)
        if pieces or end > position:
            yield Block(b"".join(pieces), len(pieces), size, max(position, end), header.partition_leader_epoch)

    @staticmethod
    def _json_of(header: BatchHeader) -> Format:
        """Return the function that prints a record of this batch as a JSON line."""
        timestamp_type = _TIMESTAMP_TYPES[header.timestamp_type] if header.magic else _NO_TIMESTAMP_TYPE

        def form(printed: Printed) -> bytes:
            """The record as a JSON line."""
            record: Record = printed.record
            return encode_record(printed.topic, printed.partition, record, timestamp_type) + b"\n"

        return form


def _check_crc(fetched: Fetched, header: BatchHeader) -> None:
    """Raise CorruptRecords where a batch does not match its checksum."""
    if not crc_is_valid(fetched.records, header):
        raise CorruptRecords(
            f"the batch at offset {header.base_offset} does not match its CRC: it was damaged on the way or on the "
            "leader's disk. Read it again; if it stays so, elect another leader with `klamm elect`."
        )
