"""A policy is a Python class that the configuration names; what cannot be one ends the start."""

import pytest

from klamm.broker.lifecycle import CannotStart
from klamm.broker.topic_policy import TopicAsked, load_create_policy
from klamm.config.node_config import NodeConfig, parse_node_config


class Anything:
    def validate(self, asked: TopicAsked) -> None:
        return None


def config(policy: str) -> NodeConfig:
    return parse_node_config(f"zookeeper.connect=z:1\ncreate.topic.policy.class.name={policy}".encode(), "x")


def test_the_create_topic_policy_is_loaded_by_its_module_and_class_name() -> None:
    assert type(load_create_policy(config(f"{__name__}:Anything"))).__name__ == "Anything"
    assert load_create_policy(config("")) is None


@pytest.mark.parametrize("named", ["org.example.Policy", "no_such_module:X", "json:NoSuchClass", "json:JSONDecoder"])
def test_a_node_start_fails_if_its_policy_class_cannot_be_loaded(named: str) -> None:
    with pytest.raises(CannotStart, match=r"create\.topic\.policy\.class\.name"):
        load_create_policy(config(named))
