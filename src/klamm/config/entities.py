"""Configs of topics and brokers as brokers report them, with value and source."""

from typing import Final, NamedTuple

from klamm.config.topic_config import ConfigSource

TOPIC: Final = 2
BROKER: Final = 4


class Entity(NamedTuple):
    """A topic or broker with configs; an empty broker name stands for the defaults of all brokers."""

    type: int
    name: str

    def __str__(self) -> str:
        if self.type == TOPIC:
            return f"topic {self.name}"
        return f"broker {self.name}" if self.name else "the brokers' defaults"


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class Config(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[Synonym, ...]
    documentation: str | None


Configs = dict[str, Config]
