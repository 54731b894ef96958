"""Log directories fail."""

from tests.differential.script import STORAGE_ERROR, script
from tests.differential.script_context import ScriptContext


@script()
async def a_directory_of_the_leader_fails(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 1]])
    s.brokers[1].errors["LeaderAndIsr"] = STORAGE_ERROR
    await s.log_dir_event(1)
    await s.kill(1)
    await s.start(1)


@script()
async def a_directory_of_a_follower_fails_at_creation(s: ScriptContext) -> None:
    s.brokers[3].errors["LeaderAndIsr"] = STORAGE_ERROR
    await s.create_topic("a", [[1, 2, 3]])
    await s.alter_isr("a", 1, [1, 2, 3], 1, 1)
    s.brokers[3].errors.clear()
    await s.bounce(3)
    await s.alter_isr("a", 1, [1, 2, 3], 1, 1)


@script(1, 2)
async def a_directory_of_the_only_replica_fails(s: ScriptContext) -> None:
    s.brokers[1].errors["LeaderAndIsr"] = STORAGE_ERROR
    await s.create_topic("a", [[1]])
    await s.create_topic("b", [[2, 1]])


@script()
async def a_replica_whose_directory_failed_goes_and_comes_back(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.fail(2, "LeaderAndIsr", STORAGE_ERROR)
    await s.log_dir_event(2)
    await s.reassign({("a", 0): [1]})
    await s.fail(2, "LeaderAndIsr", 0)
    await s.reassign({("a", 0): [1, 2]})
    await s.leader_asks("a", [1, 2])
