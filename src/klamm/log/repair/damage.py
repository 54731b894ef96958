"""What is known of damaged bytes in a segment."""

from typing import NamedTuple


class DamagedRange(NamedTuple):
    """Bytes of a segment file that are not the batches that were written there, and the offsets that they had.

    Both ends are exclusive.
    """

    position: int
    end_position: int
    first_offset: int
    end_offset: int
    reason: str
