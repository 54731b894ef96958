"""ISR changes: by AlterPartition, and by leaders of older versions themselves."""

from tests.differential.script import script
from tests.differential.script_context import ScriptContext


@script()
async def isr_shrinks_and_grows(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.alter_isr("a", 1, [1, 2], 0, 0)
    await s.alter_isr("a", 1, [1], 0, 1)
    await s.alter_isr("a", 1, [1, 3], 0, 2)
    await s.alter_isr("a", 1, [1, 3, 2], 0, 3)
    await s.kill(1)
    await s.kill(2)


@script()
async def isr_changes_in_every_version(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    for version in (0, 1, 2, 3):
        isr = [1, 2] if version % 2 == 0 else [1, 2, 3]
        await s.alter_isr("a", 1, isr, 0, version, version=version)
    await s.kill(3)
    for version in (0, 1, 2, 3):
        await s.alter_isr("a", 1, [1, 3], 1, 5, version=version)


@script()
async def what_isr_changes_are_refused_for(s: ScriptContext) -> None:
    """AlterPartition with each kind of invalid request."""
    await s.create_topic("a", [[1, 2, 3]])
    await s.alter_isr("a", 1, [1, 2], 0, 0)
    await s.alter_isr("a", 1, [1, 2], 0, 0)  # again, as after a lost answer
    await s.alter_isr("a", 1, [1, 2], 0, 1)
    await s.alter_isr("a", 1, [2, 1], 0, 0)
    await s.alter_isr("a", 1, [1], 0, 9)
    await s.alter_isr("a", 1, [1], 9, 1)
    await s.alter_isr("a", 1, [1], -1, 1)
    await s.alter_isr("a", 1, [1], 0, 1, stale_broker=True)
    await s.alter_isr("a", 9, [1], 0, 1)
    await s.alter_isr("a", 1, [1], 0, 1, partition=7)
    await s.alter_isr("unknown", 1, [1], 0, 1)
    await s.alter_isr("unknown", 1, [1], 0, 1, version=1)
    await s.alter_isr("a", 1, [1, 2], 0, 1, recovery=1)
    await s.alter_isr("a", 1, [1], 0, 1, recovery=1)
    await s.kill(3)
    await s.alter_isr("a", 1, [1, 2, 3], 0, 1)
    await s.usurp(2)
    await s.alter_isr("a", 1, [1], 0, 1)


@script()
async def an_isr_change_that_zookeeper_refuses(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.write_state("a", 1, [1, 2, 3], 0)
    await s.alter_isr("a", 1, [1, 2], 0, 0)
    await s.kill(3)


@script()
async def leaders_that_write_their_isr_themselves(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[2, 3, 1]])
    await s.write_state("a", 1, [1, 2], 0)
    await s.notify_isr("a")
    await s.write_state("b", 2, [2], 0)
    await s.notify_isr("a", "b", "unknown")
    await s.kill(1)
