"""Topic and cluster ids: 16 bytes, written as 22 characters. Source: Uuid.java (KIP-516)."""

import base64
import binascii
import uuid
from collections.abc import Callable
from typing import Final

ZERO_ID: Final = uuid.UUID(int=0)
"""Stands for "no id" on the wire."""

_RESERVED: Final = {uuid.UUID(int=0), uuid.UUID(int=1)}
_MAX_TEXT: Final = 24


def id_to_text(value: uuid.UUID) -> str:
    """Encode a topic id as URL-safe base64 without padding: 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def id_from_text(text: str) -> uuid.UUID:
    """Decode a topic id from its base64 text.

    Raises ValueError where the text is longer than 24 characters or does not hold 16 bytes.
    """
    if len(text) > _MAX_TEXT:
        raise ValueError(f"{text!r} is too long for a topic id: give at most {_MAX_TEXT} characters of base64")
    padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
    try:
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a topic id: give 16 bytes in base64") from error
    if len(raw) != 16:
        raise ValueError(f"{text!r} has {len(raw)} bytes when decoded: a topic id has 16")
    return uuid.UUID(bytes=raw)


def new_topic_id(random_bytes: Callable[[int], bytes]) -> uuid.UUID:
    """Generate a random topic id that is not reserved and whose text does not start with a dash."""
    while True:
        candidate = uuid.UUID(bytes=random_bytes(16), version=4)
        if candidate not in _RESERVED and not id_to_text(candidate).startswith("-"):
            return candidate
