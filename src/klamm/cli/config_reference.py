"""The reference of `klamm config explain`: meaning, type, default and valid values of a key."""

import difflib
from typing import Any, Final, NamedTuple

from klamm.config.broker_keys import BROKER_KEYS
from klamm.config.dynamic_keys import DYNAMIC_KEYS, QUOTA_KEYS, base_name, dynamic_key, is_per_broker, synonyms
from klamm.config.entities import Config
from klamm.config.meanings import BROKER_MEANINGS
from klamm.config.topic_config import TOPIC_KEYS
from klamm.model.errors import UsageError

TOPICS: Final = "topics"
BROKERS: Final = "brokers"


class Explained(NamedTuple):
    key: str
    entity_type: str
    meaning: str | None
    type: str
    default: str | None
    allowed: str
    dynamic: str
    """Whether and how it can be changed without a restart."""
    synonyms: tuple[str, ...]
    """Other keys that set its value."""


def explain_key(key: str, entity_type: str | None) -> list[Explained]:
    """The reference entries of a key, for topics, for brokers, or for both.

    Raises UsageError with similar keys for an unknown key.
    """
    found = []
    if key in TOPIC_KEYS and entity_type in (None, TOPICS):
        found.append(_explain_topic_key(key))
    if dynamic_key(key) is not None and entity_type in (None, BROKERS):
        found.append(_explain_broker_key(key))
    if not found:
        known = {TOPICS: [*TOPIC_KEYS], BROKERS: [*BROKER_KEYS, *QUOTA_KEYS]}
        names = [name for kind, keys in known.items() if entity_type in (None, kind) for name in keys]
        near = difflib.get_close_matches(key, names, 3)
        hint = f"Did you mean {' or '.join(dict.fromkeys(near))}?" if near else "There is no similar key."
        raise UsageError(f"There is no config {key}{f' of {entity_type}' if entity_type else ''}. {hint}")
    return found


def is_known(key: str, entity_type: str) -> bool:
    """Whether topics or brokers have a config of this name."""
    return key in TOPIC_KEYS if entity_type == TOPICS else dynamic_key(key) is not None


def _explain_topic_key(name: str) -> Explained:
    """Return meaning, type, default, valid values and synonyms of the topic config."""
    key = TOPIC_KEYS[name]
    dynamic = "yes: klamm config set --topic TOPIC"
    others = tuple(s.name for s in key.synonyms)
    return Explained(name, TOPICS, key.doc, key.type.name.lower(), key.default, key.allowed.text, dynamic, others)


def _explain_broker_key(name: str) -> Explained:
    """Return meaning, type, default, valid values and synonyms of the broker config."""
    key = dynamic_key(name)
    assert key is not None, f"{name} is known"
    meaning = BROKER_MEANINGS.get(base_name(name))
    others = tuple(s for s in synonyms(name) if s != name)
    allowed = _allowed_text(key.allowed) if key.allowed else "any value"
    return Explained(name, BROKERS, meaning, key.type, key.default, allowed, _dynamic_text(name), others)


def _dynamic_text(name: str) -> str:
    """Whether the broker config can be changed without a restart, and by which command."""
    if base_name(name) not in DYNAMIC_KEYS and base_name(name) not in QUOTA_KEYS:
        return "no: change server.properties and restart the broker"
    if name in QUOTA_KEYS:
        return "only dynamic: klamm config set --broker N, or --entity-default"
    if is_per_broker(name):
        return "yes, for each broker: klamm config set --broker N"
    return "yes: klamm config set --broker N, or --entity-default for all"


def _allowed_text(text: str) -> str:
    """The valid values of a config in words, from the notation `1..` or `a|b`."""
    if ".." not in text:
        return f"one of {', '.join(text.split('|'))}"
    low, _, high = text.partition("..")
    return f"from {low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}"


def explanation_rows(explained: Explained, now: Config | None) -> list[tuple[str, object]]:
    """The lines that explain a config, each as (label, value)."""
    documentation = now.documentation if now else None
    lines: list[tuple[str, object]] = [
        ("key", explained.key),
        ("of", explained.entity_type),
        ("meaning", explained.meaning or documentation or "see Kafka's documentation; klamm does not use it"),
        ("type", explained.type),
        ("default", "not set" if explained.default is None else explained.default or "(empty)"),
        ("allowed", explained.allowed),
        ("dynamic", explained.dynamic),
    ]
    if explained.synonyms:
        of_brokers = " of the brokers" if explained.entity_type == TOPICS else ""
        lines.append(("also set by", ", ".join(explained.synonyms) + of_brokers))
    if now is not None:
        value = "(sensitive)" if now.is_sensitive else "not set" if now.value is None else now.value
        lines.append(("now", f"{value}, from {now.source.kafka_name}"))
        lines += [("", f"{s.source.kafka_name}: {s.name}={s.value}") for s in now.synonyms]
    return lines


def as_data(explained: Explained, now: Config | None) -> dict[str, Any]:
    """Return the explanation for JSON, with the current value where `now` has one."""
    content: dict[str, Any] = explained._asdict()
    if now is not None:
        content["now"] = {"value": now.value, "source": now.source.kafka_name}
    return content
