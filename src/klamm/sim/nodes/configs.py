"""What a simulated broker does with changed configs: it keeps them, and starts elections that they allow."""

from collections.abc import Callable, Mapping
from typing import Final

from klamm.controller.controller import Controller
from klamm.model.ids import BrokerId
from klamm.zk.configs import DEFAULT_ENTITY

_UNCLEAN: Final = "unclean.leader.election.enable"


class KeptConfigs:
    """Takes changes from `broker.config_changes.ConfigChanges`, which is that of production."""

    def __init__(
        self, broker: BrokerId, controller: Controller, on_applied: Callable[[Mapping[str, Mapping[str, str]]], None]
    ) -> None:
        """`on_applied` gets the configs by entity, the path below `/config`."""
        self._broker = broker
        self._controller = controller
        self._on_applied = on_applied

    async def topics_changed(self, overrides: Mapping[str, Mapping[str, str]]) -> None:
        """Keep the overrides of these topics; where one allows unclean elections, tell the controller."""
        self._on_applied({f"topics/{topic}": own for topic, own in overrides.items()})
        for topic, own in overrides.items():
            if own.get(_UNCLEAN) == "true":
                self._controller.unclean_election_enabled(topic)

    async def brokers_changed(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Keep the configs of all brokers, and of this one."""
        self._on_applied({f"brokers/{DEFAULT_ENTITY}": cluster, f"brokers/{self._broker}": broker})
