"""Large messages encoded in pieces, so that the event loop is not held."""

from collections.abc import Iterable, Sequence
from itertools import count, takewhile
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from klamm.runtime.time_slices import Slices
from klamm.wire.api import api
from klamm.wire.codec import WireMessage

_LENGTH_BYTES: Final = 4


class EncodedMessage:
    """Takes the place of a message: its encoding as a list of buffers."""

    __slots__ = ("API_KEY", "_pieces")
    ARRAYS: ClassVar[tuple[str, ...]] = ()
    """Nothing is left to encode, so it counts as a message with few elements."""

    def __init__(self, api_key: int, pieces: Sequence[bytes]) -> None:
        self.API_KEY = api_key
        self._pieces = pieces

    def encode_pieces(self, version: int) -> list[Any]:  # noqa: ARG002 - a message is encoded in the version it is sent
        """Return the message, which is encoded already, as a list of byte strings."""
        return list(self._pieces)


async def encode_in_pieces(
    message: WireMessage, array: str, groups: Iterable[Sequence[Any]], version: int, slices: Slices
) -> EncodedMessage:
    """Encode like `message.encode(version)`, with the elements of all groups in the top-level field `array`.

    The loop may run between two groups. What `message` has in that field does not matter.
    """
    is_flexible = version >= api(message.API_KEY).first_flexible
    groups = [group for group in groups if group]
    total = sum(map(len, groups))
    empty = replace(message, **{array: []}).encode(version)
    if not total:
        return EncodedMessage(message.API_KEY, [empty])
    element, blank = groups[0][0], type(message)()
    at = _array_at(message, array, element, version, is_flexible)
    blank_at = _array_at(blank, array, element, version, is_flexible)
    nothing = len(_array_length(0, is_flexible))
    blank_tail = len(replace(blank, **{array: []}).encode(version)) - blank_at - nothing
    pieces = [empty[:at], _array_length(total, is_flexible)]
    for group in groups:
        await slices.checkpoint()
        encoded = replace(blank, **{array: group}).encode(version)
        start = blank_at + len(_array_length(len(group), is_flexible))
        pieces.append(encoded[start : len(encoded) - blank_tail])
    pieces.append(empty[at + nothing :])
    return EncodedMessage(message.API_KEY, pieces)


def _array_at(message: WireMessage, array: str, element: Any, version: int, is_flexible: bool) -> int:
    """Return the position in the encoding where the array begins."""
    none, one = (replace(message, **{array: content}).encode(version) for content in ([], [element]))
    first_difference = sum(1 for _ in takewhile(lambda at: none[at] == one[at], count()))
    return first_difference if is_flexible else first_difference - (_LENGTH_BYTES - 1)


def _array_length(length: int, is_flexible: bool) -> bytes:
    """The encoded length of an array: four bytes, or a varint in flexible versions."""
    if not is_flexible:
        return length.to_bytes(_LENGTH_BYTES, "big")
    encoded = bytearray()
    rest = length + 1
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
