"""Several things together."""

from tests.differential.script import STORAGE_ERROR, script
from tests.differential.script_context import ScriptContext


@script(1, 2, 3, 4)
async def a_leader_shuts_down_while_a_follower_is_dead(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [1, 4], [4, 1], [1]])
    await s.kill(4)
    await s.controlled_shutdown(1)
    await s.start(4)
    await s.kill(1)
    await s.alter_isr("a", 2, [2, 3], 1, 1)
    await s.start(1)


@script()
async def the_broker_that_shut_down_returns_at_once(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.controlled_shutdown(1)
    await s.bounce(1)
    await s.alter_isr("a", 2, [2, 3, 1], 1, 1)
    await s.controlled_shutdown(2)


@script()
async def a_failover_in_the_middle_of_a_shutdown(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 1]])
    await s.controlled_shutdown(1)
    await s.usurp(3)
    await s.kill(1)
    await s.start(1)
    await s.delete_controller()


@script()
async def a_failed_directory_is_forgotten_at_a_failover(s: ScriptContext) -> None:
    s.brokers[3].errors["LeaderAndIsr"] = STORAGE_ERROR
    await s.create_topic("a", [[1, 2, 3], [3, 1]])
    s.brokers[3].errors.clear()
    await s.delete_controller()
    await s.controlled_shutdown(1)


@script()
async def a_leader_bounces_under_unclean_elections(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]], {"unclean.leader.election.enable": "true"})
    await s.alter_isr("a", 1, [1], 0, 0)
    await s.bounce(1)
    await s.bounce(2)
    await s.delete_controller()


@script()
async def all_die_under_unclean_elections(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]], {"unclean.leader.election.enable": "true"})
    for broker in (1, 2, 3):
        await s.kill(broker)
    await s.delete_controller()
    await s.start(1)
    await s.delete_controller()


@script()
async def a_topic_says_no_where_the_default_says_no(s: ScriptContext) -> None:
    """The topic config forbids unclean elections, and so does the default."""
    await s.create_topic("a", [[1, 2]], {"unclean.leader.election.enable": "false"})
    await s.alter_isr("a", 1, [1], 0, 0)
    await s.kill(1)
    await s.delete_controller()


@script()
async def many_partitions_in_a_failover(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1], [2], [3], [1, 2], [2, 1]])
    await s.usurp(9)
    await s.kill(2)
    await s.kill(1)
    await s.start(2)
    await s.delete_controller()
    await s.start(1)
