"""Topics are created and grow."""

from tests.differential.script import script
from tests.differential.script_context import ScriptContext


@script()
async def topics_are_created_and_grow(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[2, 3], [3, 1]], {"retention.ms": "1000"})
    await s.grow_topic("a", [[1, 2, 3], [2, 3, 1], [3]])
    await s.grow_topic("a", [[1, 2, 3], [2, 3, 1], [3], [1, 2]])


@script(1, 2)
async def a_topic_whose_replicas_all_come_later(s: ScriptContext) -> None:
    """A topic is created before the brokers of its replicas register."""
    await s.create_topic("a", [[3, 4]])
    await s.start(4)
    await s.start(3)


@script(1, 2)
async def a_topic_with_some_replicas_dead(s: ScriptContext) -> None:
    await s.create_topic("a", [[3, 1, 2]])
    await s.grow_topic("a", [[3, 1, 2], [4, 2]])
    await s.start(3)


@script()
async def a_topic_without_an_id_is_given_one(s: ScriptContext) -> None:
    await s.create_topic_without_id("a", [[1, 2]])
    await s.kill(1)


@script()
async def a_grown_topic_keeps_its_first_assignment(s: ScriptContext) -> None:
    """A changed replica list of an existing partition in the topic znode is ignored."""
    await s.create_topic("a", [[1, 2]])
    await s.grow_topic("a", [[3, 2], [3, 1]])
    await s.kill(1)
