"""Answers of brokers that are lost, late or never come."""

from tests.differential.script import script
from tests.differential.script_context import ScriptContext


@script()
async def an_answer_is_lost(s: ScriptContext) -> None:
    s.brokers[2].break_once("LeaderAndIsr")
    await s.create_topic("a", [[1, 2, 3]])
    s.brokers[3].break_once("UpdateMetadata")
    await s.kill(1)


@script()
async def a_broker_answers_late(s: ScriptContext) -> None:
    s.brokers[3].hold("LeaderAndIsr")
    await s.create_topic("a", [[1, 2, 3]])
    await s.kill(1)
    await s.kill(2)
    await s.release(3, "LeaderAndIsr")


@script()
async def a_broker_that_never_answers_dies(s: ScriptContext) -> None:
    s.brokers[3].hold("UpdateMetadata")
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[3, 2]])
    await s.kill(3)
    await s.start(3)


@script()
async def a_failover_while_a_broker_owes_an_answer(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.hold(2, "LeaderAndIsr")
    await s.kill(1)
    await s.delete_controller()
    await s.release(2, "LeaderAndIsr")
    await s.start(1)
