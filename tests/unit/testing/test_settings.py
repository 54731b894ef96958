"""Settings and markers of the pytest plugin: what is not valid is refused with its name and the remedy."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.model.errors import UsageError
from klamm.testing.settings import cluster_from_ini, cluster_from_marker, parse_overrides, topic_options


def marker(*args: Any, **kwargs: Any) -> Any:
    return SimpleNamespace(args=args, kwargs=kwargs)


def test_config_overrides_of_the_pytest_plugin_are_lines_of_key_and_value() -> None:
    assert parse_overrides(["a.b = 1", "c=x=y"]) == {"a.b": "1", "c": "x=y"}


@pytest.mark.parametrize("line", ["log.segment.bytes", "=1", " = 1"])
def test_a_malformed_config_override_of_the_pytest_plugin_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="not KEY=VALUE"):
        parse_overrides([line])


@pytest.mark.parametrize("brokers", ["0", "-1", "three", ""])
def test_a_number_of_test_brokers_below_one_is_refused(brokers: str) -> None:
    settings: Mapping[str, Any] = {"klamm_brokers": brokers}

    with pytest.raises(UsageError, match="at least 1"), cluster_from_ini(settings.__getitem__, "unused"):
        pass


def test_the_pytest_marker_for_topics_accepts_the_options_of_create_topic() -> None:
    assert topic_options(None) == {}
    assert topic_options(marker(partitions=1, config={"a": "b"})) == {"partitions": 1, "config": {"a": "b"}}


def test_an_unknown_option_of_a_pytest_marker_is_refused_with_the_known_options() -> None:
    with pytest.raises(UsageError, match=r"mark\.klamm_topic: replicas .* partitions, copies, config"):
        topic_options(marker(replicas=2))
    with pytest.raises(UsageError, match=r"mark\.klamm: 3 "), cluster_from_marker(marker(3), "unused"):
        pass
