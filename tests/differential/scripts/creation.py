"""Topics are created and grow by the API: what is refused, what is written."""

from tests.differential.script import script
from tests.differential.script_context import ScriptContext


@script()
async def topics_are_created_by_the_api(s: ScriptContext) -> None:
    await s.create_topics({"a": [[1, 2, 3], [2, 3, 1]]}, {"retention.ms": "1000"})
    await s.create_topics({"b": [[1]], "c": [[3, 2], [2, 1]]})
    await s.create_topics({"d": [[3]]}, version=2)
    await s.kill(1)


@script()
async def what_creations_are_refused_for(s: ScriptContext) -> None:
    """CreateTopics with each kind of invalid request."""
    await s.create_topics({"a": [[1, 2]]})
    await s.create_topics({"a": [[1, 2]], "b": [[2]]})
    await s.create_topics({"c": [[1, 1]]})
    await s.create_topics({"c": [[1, 2], [1]]})
    await s.create_topics({"nobody": [[]]})
    await s.create_topics({"a.b": [[1]], "a_b": [[1]]})
    await s.create_topics({"": [[1]], "not/legal": [[1]], "..": [[1]], "x" * 250: [[1]]})
    await s.create_topics({"c": [[1]]}, {"retention.ms": "many"})
    await s.create_topics({"c": [[1]]}, {"no.such.thing": "1"})
    await s.create_topics({"c": [[1]]}, {"retention.ms": None})
    await s.create_topics({"__cluster_metadata": [[1]]})


@script()
async def creations_that_only_ask(s: ScriptContext) -> None:
    """CreateTopics with validate_only."""
    await s.create_topics({"a": [[1, 2]]}, validate_only=True)
    await s.create_counted("a", 3, 2)
    await s.create_counted("a", 0, 2)
    await s.create_counted("a", 3, 9)
    await s.create_counted("a", 3, 0)
    await s.create_counted("a", -1, -1)
    await s.create_topics({"a": [[1, 2]]})
    await s.create_counted("a", 3, 2)


@script()
async def creations_on_brokers_that_are_not_there(s: ScriptContext) -> None:
    """Lists given by hand are not checked against the brokers."""
    await s.create_topics({"a": [[7, 1]]})
    await s.create_topics({"b": [[7]]}, timeout_ms=50)
    await s.create_topics({"c": [[1]]}, timeout_ms=0)
    await s.start(7)


@script()
async def topics_grow_by_the_api(s: ScriptContext) -> None:
    await s.create_topics({"a": [[1, 2], [2, 3]]})
    await s.create_partitions("a", 4, [[3, 1], [1, 3]])
    await s.create_partitions("a", 5, [[3, 2]], validate_only=True)
    await s.kill(3)


@script()
async def what_growth_is_refused_for(s: ScriptContext) -> None:
    """CreatePartitions with each kind of invalid request."""
    await s.create_topics({"a": [[1, 2], [2, 3]]})
    await s.create_partitions("unknown", 4)
    await s.create_partitions("a", 2)
    await s.create_partitions("a", 1)
    await s.create_partitions("a", 3, [])
    await s.create_partitions("a", 3, [[1]])
    await s.create_partitions("a", 3, [[1, 1]])
    await s.create_partitions("a", 3, [[1, 7]])
    await s.create_partitions("a", 3, [[1, 2], [2, 1]])
    await s.create_partitions("a", 4, [[1, 2], []])


@script()
async def a_topic_that_was_removed_by_hand_is_created_by_the_api(s: ScriptContext) -> None:
    await s.create_topics({"a": [[1, 2]]})
    await s.delete_topics("a")
    await s.create_topics({"a": [[2, 1]]})
    await s.create_partitions("a", 2, [[1, 2]])
    await s.delete_topics("a")


@script()
async def a_topic_in_2_7_has_no_id(s: ScriptContext) -> None:
    await s.create_topic_without_id("a", [[1, 2]])
    await s.kill(1)


@script(1, 2, 3, 4)
async def many_topics_at_once(s: ScriptContext) -> None:
    await s.create_topics({f"t{i}": [[1 + i % 4, 1 + (i + 1) % 4], [1 + (i + 2) % 4]] for i in range(12)})
    await s.kill(2)
    await s.delete_topics(*(f"t{i}" for i in range(0, 12, 2)), timeout_ms=0)
    await s.start(2)


@script()
async def a_topic_whose_assignment_is_nonsense(s: ScriptContext) -> None:
    await s.write("/brokers/topics/a", '{"version":3,"partitions":{"0":[]}}')
    await s.write("/brokers/topics/b", '{"version":1,"partitions":{}}')
    await s.write("/brokers/topics/c", '{"version":2,"partitions":{"0":[1,1]}}')
    await s.create_topic("d", [[1, 2]])
    await s.delete_topic("a", "b")
    await s.kill(1)


@script()
async def a_topic_with_holes_among_its_partitions(s: ScriptContext) -> None:
    """A topic whose partition numbers have gaps."""
    await s.write("/brokers/topics/a", '{"version":2,"partitions":{"0":[1,2],"7":[2,3]}}')
    await s.kill(2)
    await s.delete_topic("a")
    await s.start(2)


@script()
async def a_topic_changes_its_id_by_hand(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.write(
        "/brokers/topics/a", '{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1,2],"1":[2]}}'
    )
    await s.kill(1)
    await s.delete_controller()


@script()
async def a_topic_grows_where_some_brokers_have_racks(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.change_endpoints(3, "left")
    await s.create_partitions("a", 2, [[2, 3]], validate_only=True)
    await s.create_partitions("a", 2, [[2, 3]])
