"""Topic configs while a node loads its logs; each is parsed once."""

from collections.abc import Mapping
from typing import Final

from klamm.config.config_types import InvalidConfig
from klamm.config.topic_config import TopicConfig


class LoadedConfigs:
    """Parsed topic configs, by topic."""

    def __init__(self, overrides: Mapping[str, Mapping[str, str]], defaults: Mapping[str, str]) -> None:
        self._overrides = overrides
        self._defaults = defaults
        self._parsed: dict[str, TopicConfig] = {}
        self.problems: dict[str, str] = {}
        self.default: Final = TopicConfig.parse({}, defaults)

    def of(self, topic: str) -> TopicConfig:
        """The config of this topic."""
        own = self._overrides.get(topic)
        if not own:
            return self.default
        if topic not in self._parsed:
            try:
                self._parsed[topic] = TopicConfig.parse(own, self._defaults)
            except InvalidConfig as error:
                self.problems[topic] = str(error)
                self._parsed[topic] = self.default
        return self._parsed[topic]
