"""Controlled shutdown."""

from tests.differential.script import script
from tests.differential.script_context import ScriptContext


@script()
async def the_leader_shuts_down(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [1, 3]])
    await s.controlled_shutdown(1)
    await s.kill(1)
    await s.start(1)


@script()
async def a_follower_shuts_down(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.controlled_shutdown(3)
    await s.controlled_shutdown(3)
    await s.kill(3)


@script(1, 2)
async def the_last_in_sync_replica_shuts_down(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2], [1]])
    await s.kill(2)
    await s.controlled_shutdown(1)
    await s.start(2)
    await s.controlled_shutdown(1)


@script()
async def one_shuts_down_after_the_other(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 3, 1], [3, 1, 2], [2], [2, 1]])
    for broker in (1, 2, 3):
        await s.controlled_shutdown(broker)
    await s.kill(1)
    await s.start(1)


@script()
async def what_a_shutdown_is_refused_for(s: ScriptContext) -> None:
    """ControlledShutdown with each kind of invalid request."""
    await s.create_topic("a", [[1, 2, 3]])
    await s.controlled_shutdown(1, stale_broker=True)
    await s.controlled_shutdown(9)
    await s.controlled_shutdown(9, version=1)
    await s.controlled_shutdown(1, version=1)
    await s.usurp(2)
    await s.controlled_shutdown(2)


@script()
async def a_broker_shutting_down_is_not_eligible(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.controlled_shutdown(2)
    await s.alter_isr("a", 1, [1, 2, 3], 1, 1)
    await s.kill(1)
    await s.kill(3)
    await s.bounce(2)
