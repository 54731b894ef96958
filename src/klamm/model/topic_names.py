"""Topic names that Kafka gives a meaning. Source: Topic.java."""

from typing import Final

INTERNAL_TOPICS: Final = frozenset(("__consumer_offsets", "__transaction_state"))
"""Topics that hold the state of groups and of transactions."""
