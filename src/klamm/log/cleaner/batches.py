"""What a cleaning writes of the batches it read, and how many records they had."""

from dataclasses import dataclass
from typing import NamedTuple


class WrittenBatch(NamedTuple):
    """A batch for the new segment."""

    content: bytes | memoryview
    first_offset: int
    last_offset: int
    max_timestamp: int


@dataclass(slots=True)
class FilterCounts:
    """The records of one cleaning; those without a key are removed."""

    read_records: int = 0
    written_records: int = 0
    keyless_records: int = 0
