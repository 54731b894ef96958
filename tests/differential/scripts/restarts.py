"""A controller that stops and starts: what a cluster keeps."""

from tests.differential.script import STORAGE_ERROR, script
from tests.differential.script_context import ScriptContext


@script()
async def a_topic_keeps_its_id_over_a_restart(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 1]])
    await s.stop_node()
    await s.kill(3)
    await s.start_controller()
    await s.kill(1)


@script()
async def an_epoch_outlives_all_brokers(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    for broker in (1, 2, 3):
        await s.kill(broker)
    await s.stop_node()
    await s.start_controller()
    await s.start(2)


@script(1, 2, cold=True)
async def topics_without_ids_are_given_some_at_the_start(s: ScriptContext) -> None:
    await s.create_topic_without_id("a", [[1, 2]])
    await s.create_topic("b", [[2, 1]])
    await s.start_controller()
    await s.delete_controller()
    await s.kill(1)


@script(protocol="2.7")
async def topics_get_no_ids_in_2_7(s: ScriptContext) -> None:
    await s.create_topic_without_id("a", [[1, 2]])
    await s.create_topic("b", [[1, 2]])
    await s.delete_controller()
    await s.kill(1)


@script()
async def a_topic_without_an_id_that_moves_is_given_one(s: ScriptContext) -> None:
    await s.create_topic_without_id("a", [[1]])
    await s.reassign({("a", 0): [2]})
    await s.leader_asks("a", [1, 2])
    await s.delete_controller()


@script()
async def a_new_replica_has_a_failed_directory(s: ScriptContext) -> None:
    await s.fail(3, "LeaderAndIsr", STORAGE_ERROR)
    await s.create_topic("a", [[1, 2]])
    await s.reassign({("a", 0): [3, 2]})
    await s.leader_asks("a", [1, 2, 3])
    await s.fail(3, "LeaderAndIsr", 0)
    await s.bounce(3)
    await s.leader_asks("a", [2, 3])


@script()
async def brokers_without_any_replica_come_and_go(s: ScriptContext) -> None:
    await s.kill(3)
    await s.create_topic("a", [[1]])
    await s.kill(2)
    await s.start(3)
