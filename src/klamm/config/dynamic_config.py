"""A node's configuration at run time: the file, overridden by cluster-wide and then by per-broker dynamic configs.

Source: DynamicBrokerConfig.scala (3.9).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import structlog

from klamm.config.broker_keys import parse_value
from klamm.config.config_types import InvalidConfig
from klamm.config.dynamic_keys import (
    THREAD_COUNTS,
    dynamic_key,
    is_dynamic,
    is_password,
    is_per_broker,
    needs_listener,
    override,
)
from klamm.config.node_config import NodeConfig, WrongConfig, parse_node_config
from klamm.config.topic_config import ConfigSource, Layers, TopicConfig

log = structlog.get_logger("config")

_NO_PASSWORDS: Final = "passwords cannot be changed dynamically: klamm does not encrypt them in ZooKeeper yet"


class DynamicConfig:
    """The dynamic configs in ZooKeeper, and `current`, the resulting configuration.

    `on_change(before, now)` is called after each change of `current`; it must not raise.
    """

    def __init__(self, static: NodeConfig) -> None:
        self.static = static
        self.cluster: Mapping[str, str] = {}
        self.broker: Mapping[str, str] = {}
        self.current = static
        self.on_change: Callable[[NodeConfig, NodeConfig], None] = lambda _before, _now: None

    def apply(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Apply the dynamic configs that ZooKeeper has now. Invalid entries are logged and left out."""
        self.cluster = self._valid_entries(cluster, per_broker=False)
        self.broker = self._valid_entries(broker, per_broker=True)
        before, given = self.current, self._merged(self.cluster, self.broker)
        if given == dict(before.given):
            return
        try:
            self.current = replace(_parse_and_check(self.static.source, given), places=self.static.places)
        except (WrongConfig, InvalidConfig) as error:
            log.error(
                "dynamic configs contradict each other; the previous ones stay in use",
                reason=str(error),
                action="Correct them: klamm config set --broker N KEY=VALUE",
            )
            return
        self.on_change(before, self.current)

    @property
    def given(self) -> Mapping[str, str]:
        """All entries of the current dynamic and static configs, as a mapping that follows later changes."""
        return _Given(self)

    @property
    def layers(self) -> Layers:
        """The sources of config values, the strongest first, without Kafka's defaults."""
        return (
            (ConfigSource.DYNAMIC_BROKER, self.broker),
            (ConfigSource.DYNAMIC_DEFAULT, self.cluster),
            (ConfigSource.BROKER, self.static.given),
        )

    def check(self, configs: Mapping[str, str], *, per_broker: bool) -> None:
        """Check configs that a client sets. Raises InvalidConfig, or WrongConfig where they contradict others."""
        _raise_if_any([n for n in configs if not is_dynamic(n)], "Cannot update these configs dynamically")
        _raise_if_any(
            [n for n in configs if needs_listener(n)],
            "These security configs can be dynamically updated only per-listener using the listener prefix",
        )
        for name, value in configs.items():
            _check_value(name, value)
        if not per_broker:
            _raise_if_any(
                [n for n in configs if is_per_broker(n)],
                "Cannot update these configs at default cluster level, broker id must be specified",
            )
        _raise_if_any([n for n in configs if is_password(n)], _NO_PASSWORDS)
        cluster, broker = (self.cluster, configs) if per_broker else (configs, self.broker)
        candidate = _parse_and_check("the new configuration", self._merged(cluster, broker))
        self._check_thread_counts(candidate)

    def usable(self, configs: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
        """The valid entries of a stored configuration; changes by a client are applied to these."""
        return self._valid_entries(configs, per_broker=per_broker)

    def _check_thread_counts(self, candidate: NodeConfig) -> None:
        """Raise InvalidConfig where a thread pool would grow or shrink by more than a factor of two."""
        for name in sorted(THREAD_COUNTS):
            before, now = (_int_value(config, name) for config in (self.current, candidate))
            if now == before:
                continue
            allowed = _invalid_thread_count(before, now)
            if allowed is not None:
                raise InvalidConfig(name, str(now), allowed=allowed)

    def _merged(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> dict[str, str]:
        """The file's entries, overridden by the cluster's and the broker's."""
        given = dict(self.static.given)
        override(given, cluster)
        override(given, broker)
        return given

    def _valid_entries(self, configs: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
        """The entries that can be used; the others are logged."""
        kept: dict[str, str] = {}
        for name, value in configs.items():
            reason = _invalid_reason(name, value, per_broker=per_broker)
            if reason is None:
                kept[name] = value
            else:
                log.error(
                    "dynamic config ignored; the value of server.properties or the default is used",
                    key=name,
                    reason=reason,
                    action=f"Correct it: klamm config set --broker N {name}=VALUE",
                )
        return kept


def _parse_and_check(source: str, given: Mapping[str, str]) -> NodeConfig:
    """Parse these entries and check the rules between keys. Raises WrongConfig, InvalidConfig."""
    config = parse_node_config(b"", source, given)
    TopicConfig.parse({}, given)
    return config


def _invalid_reason(name: str, value: str, *, per_broker: bool) -> str | None:
    """Why a stored dynamic config cannot be used; None if it can."""
    if not is_dynamic(name) or needs_listener(name):
        return "the config cannot be changed at run time"
    if not per_broker and is_per_broker(name):
        return "the config belongs to one broker, not to the cluster's defaults"
    if is_password(name):
        return _NO_PASSWORDS
    try:
        _check_value(name, value)
    except InvalidConfig as error:
        return str(error)
    return None


def _check_value(name: str, value: str) -> None:
    """Raise InvalidConfig where the value does not have the type or range of its key."""
    key = dynamic_key(name)
    if key is None:
        return
    parse_value(key, value)


def _raise_if_any(names: Iterable[str], sentence: str) -> None:
    """Raise InvalidConfig with the sentence and the names, if there are any names."""
    listed = ", ".join(sorted(names))
    if listed:
        raise InvalidConfig.with_text(f"{sentence}: {listed}")


def _int_value(config: NodeConfig, name: str) -> int:
    """Return the value of an integer config: the given one, else the default."""
    key = dynamic_key(name)
    assert key is not None, f"{name} is a key of Kafka's"
    assert key.default is not None, f"{name} has a default"
    value = parse_value(key, config.given.get(name, key.default))
    assert isinstance(value, int)
    return value


def _invalid_thread_count(before: int, now: int) -> str | None:
    """Kafka's message if a thread count cannot change from `before` to `now`; None if it can."""
    if now <= 0:
        return "value should be at least 1"
    if now < before // 2:
        return f"value should be at least half the current value {before}"
    if now > before * 2:
        return f"value should not be greater than double the current value {before}"
    return None


class _Given(Mapping[str, str]):
    """The entries of `current` at each access."""

    def __init__(self, dynamic: DynamicConfig) -> None:
        self._dynamic = dynamic

    def __getitem__(self, name: str) -> str:
        return self._dynamic.current.given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._dynamic.current.given)

    def __len__(self) -> int:
        return len(self._dynamic.current.given)
