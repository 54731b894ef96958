"""Verbs that ask a controller for something other than moves, elections and topics."""

import asyncio
from typing import Final

from klamm.controller.decisions.features import FeatureUpdate
from klamm.sim.moving import acting_controller, ask_on_its_host
from klamm.sim.stage import Draw, Stage

_FEATURE: Final = "group.version"


async def ask_around(stage: Stage, draw: Draw) -> None:
    """Somebody lists what moves, a broker wants producer ids, and an operator tries out a feature: in one go."""
    node = acting_controller(stage)
    number = draw("node", lambda dice: node.broker.number if node else None)
    level = draw("level", lambda dice: dice.randint(0, 2))
    if node is None or number is None:
        return
    stage.tell(f"node {number} is asked for moves, producer ids, and feature {_FEATURE} {level}")
    update = [FeatureUpdate(_FEATURE, level)]
    controller, broker = node.broker.controller, node.broker
    await asyncio.gather(
        ask_on_its_host(stage, node, controller.list_reassignments(None)),
        ask_on_its_host(stage, node, controller.allocate_producer_ids(broker.number, broker.broker_epoch)),
        ask_on_its_host(stage, node, controller.update_features(update, 1.0, validate_only=False)),
    )


async def allow_unclean_by_default(stage: Stage, draw: Draw) -> None:
    """The brokers' default for unclean elections changes at run time, on every node."""
    allowed = draw("allowed", lambda dice: dice.random() < 0.5)
    stage.tell(f"unclean.leader.election.enable={str(allowed).lower()} by default")
    for node in stage.nodes.values():
        if node.host.is_alive:
            change = node.broker.controller.allow_unclean_election
            stage.loop.call_on(node.host, stage.loop.time(), change, allowed)
