"""The operator's policy for new topics: a class named by `create.topic.policy.class.name`.

Apache Kafka loads a Java class; klamm loads `module:Class` of Python. Source: CreateTopicPolicy.java (3.9).
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from klamm.broker.lifecycle import CannotStart
from klamm.config.node_config import NodeConfig
from klamm.model.errors import ErrorCode

KEY = "create.topic.policy.class.name"
log = structlog.get_logger("node")


class PolicyViolation(Exception):
    """Raised by a policy to reject a request; the client gets the text."""


@dataclass(frozen=True, slots=True)
class TopicAsked:
    """The requested topic; counts are None if the client chose the replicas, as in Kafka."""

    topic: str
    partitions: int | None
    replication_factor: int | None
    replicas: Mapping[int, tuple[int, ...]] | None
    configs: Mapping[str, str]


class CreateTopicPolicy(Protocol):
    """The operator's class: created once without arguments, called for each topic, also for validate-only requests."""

    def validate(self, asked: TopicAsked) -> None:
        """Raise PolicyViolation to reject the topic."""
        ...


def load_create_policy(config: NodeConfig) -> CreateTopicPolicy | None:
    """An instance of create.topic.policy.class.name; None where it is not set.

    Raises CannotStart where it cannot be loaded.
    """
    named = config.create_topic_policy_class_name
    if not named:
        return None
    policy: CreateTopicPolicy = load_validator(KEY, named, config.source)
    return policy


def policy_failure(key: str, name: str, error: Exception) -> tuple[ErrorCode, str]:
    """The error for a policy that raised something other than PolicyViolation; the exception is logged."""
    log.error(
        "the policy class failed: the request is refused",
        key=key,
        resource=name,
        reason=repr(error),
        action=f"Correct the class that {key} names.",
        exc_info=error,
    )
    return (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"The class of {key} failed on {name}. See the log of the broker for the reason.",
    )


def load_validator(key: str, named: str, source: str) -> Any:
    """An instance of `module:Class` that has a method `validate`. Raises CannotStart, naming the key."""
    module, colon, name = named.partition(":")
    if not colon:
        raise CannotStart(f"{key}={named} in {source} is not module:Class. Correct or remove it.")
    try:
        policy = getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError, TypeError) as error:
        raise CannotStart(f"{key}={named} in {source} cannot be loaded: {error}. Correct or remove it.") from error
    if not callable(getattr(policy, "validate", None)):
        raise CannotStart(f"{key}={named} in {source} has no method validate(asked). Add it.")
    return policy
