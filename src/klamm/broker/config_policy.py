"""Who may alter which configs: a class of the operator's own, named by `alter.config.policy.class.name`.

Apache Kafka takes a Java class; a node of ours takes `module:Class` of Python. Source: AlterConfigPolicy.java (3.9).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from klamm.broker.topic_policy import load_validator
from klamm.config.node_config import NodeConfig

KEY = "alter.config.policy.class.name"


@dataclass(frozen=True, slots=True)
class AlterationAsked:
    """What the request names, None for what it deletes; a broker's name is empty for the cluster's defaults."""

    resource_type: int
    resource_name: str
    configs: Mapping[str, str | None]


class AlterConfigPolicy(Protocol):
    """Made once, without arguments; asked for each resource, also where the client only validates."""

    def validate(self, asked: AlterationAsked) -> None:
        """Raises `topic_policy.PolicyViolation` where the configs may not be."""
        ...


def load_alter_policy(config: NodeConfig) -> AlterConfigPolicy | None:
    """An instance of alter.config.policy.class.name; None where it is not set.

    Raises CannotStart where it cannot be loaded.
    """
    named = config.alter_config_policy_class_name
    if not named:
        return None
    policy: AlterConfigPolicy = load_validator(KEY, named, config.source)
    return policy
