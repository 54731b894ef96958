"""Which topic names are legal, and which names collide. Source: Topic.java (3.9)."""

import re
from typing import Final

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
_MAX_LENGTH: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def name_error(topic: str) -> str | None:
    """Why the name is not legal; None where it is."""
    if not topic:
        return "the topic name is empty. Use letters, digits, '.', '_' and '-'."
    if topic in (".", ".."):
        return f"the topic name {topic!r} is not allowed. Choose another name."
    if len(topic) > _MAX_LENGTH:
        return f"the topic name has {len(topic)} characters. Use at most {_MAX_LENGTH}."
    if not _LEGAL.fullmatch(topic):
        return f"the topic name {topic!r} has a character that is not allowed. Use letters, digits, '.', '_' and '-'."
    return None


def has_collision_character(topic: str) -> bool:
    """Whether the name contains '.' or '_', which are the same character in metric names."""
    return "." in topic or "_" in topic


def name_in_metrics(topic: str) -> str:
    """The topic's name as metrics have it: topics that differ only in '.' and '_' collide."""
    return topic.replace(".", "_")
