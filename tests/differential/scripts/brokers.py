"""Brokers come and go."""

from tests.differential.script import script
from tests.differential.script_context import ScriptContext


@script()
async def leader_dies_returns_and_rejoins(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.kill(1)
    await s.start(1)
    await s.alter_isr("a", 2, [2, 3, 1], 1, 1)


@script()
async def follower_dies_returns_and_rejoins(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.kill(3)
    await s.start(3)
    await s.alter_isr("a", 1, [1, 2, 3], 1, 1)


@script(1, 2)
async def only_replica_dies_and_returns(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.kill(1)
    await s.start(1)


@script()
async def brokers_die_one_after_the_other_and_return_in_the_same_order(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    for broker in (1, 2, 3):
        await s.kill(broker)
    for broker in (1, 2, 3):
        await s.start(broker)


@script()
async def brokers_return_last_one_first(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    for broker in (3, 2, 1):
        await s.kill(broker)
    for broker in (3, 2, 1):
        await s.start(broker)


@script(1, 2, 3, 4)
async def many_assignments_lose_a_broker(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 1, 4], [3, 4, 2], [4, 2, 1], [2, 3], [2], [1, 4]])
    await s.create_topic("b", [[2, 4, 1]])
    await s.kill(2)
    await s.start(2)
    await s.kill(4)


@script()
async def leader_bounces(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 3, 1]])
    await s.bounce(1)
    await s.alter_isr("a", 2, [2, 3, 1], 1, 1)


@script(1, 2)
async def only_replica_bounces(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.bounce(1)


@script(1, 2)
async def a_session_expires(s: ScriptContext) -> None:
    await s.create_topic("a", [[3, 1], [1, 3]])
    await s.start(3, short_session=True)
    await s.vanish(3)


@script(1, 2)
async def a_new_broker_without_replicas(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.start(3)
    await s.kill(3)


@script(1, 2)
async def a_registration_changes(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.change_endpoints(2, "east")
    await s.change_endpoints(2, "west")


@script(1, 2, 3, 4)
async def two_brokers_die_at_once(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 1, 4], [1, 2], [3, 1, 2], [1], [4, 3, 1]])
    await s.kill_together(1, 2)
    await s.start(2)
    await s.start(1)


@script(1, 2, 3, 4)
async def all_brokers_die_at_once(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [4, 2], [3]])
    await s.kill_together(1, 2, 3, 4)
    await s.start(3)
    await s.start(2)
    await s.start(1)
    await s.start(4)


@script(1, 2, 3, 4)
async def one_bounces_while_another_dies(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 1], [3, 1, 4], [2], [1]])
    await s.bounce(1, others_die=[2])
    await s.start(2)


@script(1, 2, 3, 4)
async def all_die_at_once_under_unclean_elections(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [4, 2]], {"unclean.leader.election.enable": "true"})
    await s.kill_together(1, 2, 3)
    await s.start(3)
    await s.start(2)
