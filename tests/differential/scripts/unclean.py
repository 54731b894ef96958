"""Unclean elections, and nobody left in sync."""

from tests.differential.script import script
from tests.differential.script_context import ScriptContext


@script(1, 2)
async def nobody_in_sync_is_left(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.kill(2)
    await s.kill(1)
    await s.start(2)
    await s.start(1)


@script(1, 2)
async def unclean_leader_that_recovers(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]], {"unclean.leader.election.enable": "true"})
    await s.start(3)
    await s.alter_isr("a", 1, [1], 0, 0)
    await s.kill(1)
    await s.alter_isr("a", 2, [2, 3], 1, 2, recovery=1)
    await s.alter_isr("a", 2, [2], 1, 2)
    await s.alter_isr("a", 2, [2], 1, 2, recovery=1)
    await s.alter_isr("a", 2, [2, 3], 1, 3)


@script(1, 2)
async def unclean_leader_that_dies_before_it_recovered(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]], {"unclean.leader.election.enable": "true"})
    await s.alter_isr("a", 1, [1], 0, 0)
    await s.kill(1)
    await s.kill(2)
    await s.start(2)
    await s.start(1)


@script(1, 2)
async def unclean_allowed_when_it_is_too_late(s: ScriptContext) -> None:
    """Unclean elections are allowed after the last in-sync replica has died."""
    await s.create_topic("a", [[1, 2]])
    await s.alter_isr("a", 1, [1], 0, 0)
    await s.kill(1)
    await s.set_config("a", {"unclean.leader.election.enable": "true"})
    await s.notify_config("a")
