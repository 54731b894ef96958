"""Which partition of a coordinator's topic keeps a name. Source: GroupMetadataManager.partitionFor (3.9)."""

from typing import Final

_UNSIGNED: Final = 0xFFFF_FFFF
_SMALLEST: Final = -(2**31)


def java_hash(text: str) -> int:
    """Return what Java's `String.hashCode` returns: a signed number of 32 bits over the UTF-16 units."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & _UNSIGNED
    return code - (1 << 32) if code & 0x8000_0000 else code


def partition_for(name: str, partition_count: int) -> int:
    """Return the partition for a group id or transactional id.

    It is the absolute value of Java's string hash, modulo the partition count.
    """
    code = java_hash(name)
    return (0 if code == _SMALLEST else abs(code)) % partition_count
