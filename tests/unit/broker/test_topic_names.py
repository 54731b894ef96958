"""Legal names, and names that collide."""

import pytest

from klamm.broker.topic_names import name_error, name_in_metrics


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "__consumer_offsets", "..."])
def test_validation_of_legal_topic_names_returns_no_error(name: str) -> None:
    assert name_error(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a:b"])
def test_validation_of_illegal_topic_names_returns_an_error(name: str) -> None:
    assert name_error(name)


def test_topic_names_that_differ_only_in_dot_and_underscore_collide() -> None:
    assert name_in_metrics("a.b") == name_in_metrics("a_b") != name_in_metrics("ab")
