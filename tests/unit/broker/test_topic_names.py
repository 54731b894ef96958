"""Legal names, and names that collide."""

import pytest

from klamm.broker.topic_names import colliding_topic, name_error


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "__consumer_offsets", "..."])
def test_validation_of_legal_topic_names_returns_no_error(name: str) -> None:
    assert name_error(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a:b"])
def test_validation_of_illegal_topic_names_returns_an_error(name: str) -> None:
    assert name_error(name)


def test_topic_names_that_differ_only_in_dot_and_underscore_collide() -> None:
    assert colliding_topic("a.b", ["c", "a_b"]) == "a_b"
    assert colliding_topic("a.b", ["a.b", "ab"]) is None
    assert colliding_topic("ab", ["a_b"]) is None
