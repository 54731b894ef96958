"""The partition of a group. The hashes are Java's `String.hashCode`."""

import pytest

from klamm.coordinator.topic_partitions import java_hash, partition_for

JAVA_HASHES = {
    "": 0,
    "a": 97,
    "hello": 99162322,
    "hello world": 1794106052,
    "polygenelubricants": -(2**31),
    "ä": 228,
    "𝄞": 1772394,
}


@pytest.mark.parametrize(("text", "code"), JAVA_HASHES.items())
def test_group_hash_equals_javas_string_hash(text: str, code: int) -> None:
    assert java_hash(text) == code


def test_partition_is_the_absolute_hash_modulo_the_partition_count() -> None:
    assert partition_for("hello", 50) == 99162322 % 50
    assert partition_for("hello-world", 50) == abs(java_hash("hello-world")) % 50


def test_smallest_hash_has_no_absolute_value_and_counts_as_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0
