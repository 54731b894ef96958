"""Who is controller changes: elections, take-overs, what happens meanwhile."""

from tests.differential.script import script
from tests.differential.script_context import ScriptContext


@script()
async def the_controller_is_elected_again(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 3]])
    await s.delete_controller()
    await s.delete_controller()


@script()
async def the_leader_dies_while_nobody_looks(s: ScriptContext) -> None:
    """A leader dies while there is no controller."""
    await s.create_topic("a", [[1, 2, 3]])
    await s.usurp(2)
    await s.kill(1)
    await s.delete_controller()


@script(1, 2)
async def an_offline_partition_at_every_failover(s: ScriptContext) -> None:
    """A partition is offline during several failovers."""
    await s.create_topic("a", [[1]])
    await s.kill(1)
    await s.delete_controller()
    await s.delete_controller()
    await s.start(1)


@script()
async def topics_and_brokers_appear_while_nobody_looks(s: ScriptContext) -> None:
    """Topics are created and brokers register while there is no controller."""
    await s.create_topic("a", [[1, 2]])
    await s.usurp(3)
    await s.create_topic("b", [[2, 4]])
    await s.create_topic("c", [[5]])
    await s.grow_topic("a", [[1, 2], [4, 3]])
    await s.notify_isr("a")
    await s.log_dir_event(2)
    await s.start(4)
    await s.delete_controller()


@script(1, 2, cold=True)
async def a_controller_finds_everything_there(s: ScriptContext) -> None:
    """A controller starts with topics and states that exist already."""
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[3]])
    await s.start_controller()
    await s.kill(1)


@script()
async def a_shutdown_is_forgotten_at_a_failover(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.controlled_shutdown(3)
    await s.delete_controller()
    await s.alter_isr("a", 1, [1, 2, 3], 1, 1)


@script()
async def a_newer_controller_has_written(s: ScriptContext) -> None:
    """A partition state has a newer controller epoch than the controller."""
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[1, 2, 3]])
    await s.write_state("a", 1, [1, 2, 3], 0, controller_epoch=9)
    await s.kill(1)
