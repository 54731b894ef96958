"""The operator's policy for config changes: a class named by `alter.config.policy.class.name`.

Apache Kafka loads a Java class; klamm loads `module:Class` of Python. Source: AlterConfigPolicy.java (3.9).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from klamm.broker.topic_policy import load_validator
from klamm.config.node_config import NodeConfig

KEY = "alter.config.policy.class.name"


@dataclass(frozen=True, slots=True)
class AlterationAsked:
    """The requested configs, None for those to delete; the broker's name is empty for the cluster's defaults."""

    resource_type: int
    resource_name: str
    configs: Mapping[str, str | None]


class AlterConfigPolicy(Protocol):
    """The operator's class: created once without arguments, called for each resource, also when only validating."""

    def validate(self, asked: AlterationAsked) -> None:
        """Raise `topic_policy.PolicyViolation` to reject the configs."""
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
