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
def test_the_hash_of_a_group_id_equals_javas_string_hash(text: str, code: int) -> None:
    assert java_hash(text) == code


def test_a_groups_offsets_partition_is_the_absolute_hash_modulo_the_partition_count() -> None:
    assert partition_for("hello", 50) == 99162322 % 50
    assert partition_for("hello-world", 50) == abs(java_hash("hello-world")) % 50


def test_a_group_id_with_javas_smallest_integer_hash_belongs_to_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0
