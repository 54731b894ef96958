"""Settings and markers of the pytest plugin: what is not valid is refused with its name and the remedy."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.model.errors import UsageError
from klamm.testing.settings import cluster_from_ini, cluster_from_marker, parse_overrides, topic_options


def marker(*args: Any, **kwargs: Any) -> Any:
    return SimpleNamespace(args=args, kwargs=kwargs)


def test_overrides_are_lines_of_key_and_value() -> None:
    assert parse_overrides(["a.b = 1", "c=x=y"]) == {"a.b": "1", "c": "x=y"}


@pytest.mark.parametrize("line", ["log.segment.bytes", "=1", " = 1"])
def test_an_override_that_is_not_key_and_value_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="not KEY=VALUE"):
        parse_overrides([line])


@pytest.mark.parametrize("brokers", ["0", "-1", "three", ""])
def test_a_number_of_brokers_below_one_is_refused(brokers: str) -> None:
    settings: Mapping[str, Any] = {"klamm_brokers": brokers}

    with pytest.raises(UsageError, match="at least 1"), cluster_from_ini(settings.__getitem__, "unused"):
        pass


def test_options_of_the_topic_marker_are_those_of_create_topic() -> None:
    assert topic_options(None) == {}
    assert topic_options(marker(partitions=1, config={"a": "b"})) == {"partitions": 1, "config": {"a": "b"}}


def test_an_unknown_option_of_a_marker_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"mark\.klamm_topic: replicas .* partitions, copies, config"):
        topic_options(marker(replicas=2))
    with pytest.raises(UsageError, match=r"mark\.klamm: 3 "), cluster_from_marker(marker(3), "unused"):
        pass
