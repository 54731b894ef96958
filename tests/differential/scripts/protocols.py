"""The same small life in older protocol versions."""

from tests.differential.script import script
from tests.differential.script_context import ScriptContext


async def _a_small_life(s: ScriptContext) -> None:
    """Create a topic, shut down, kill and restart brokers."""
    await s.create_topic("a", [[1, 2, 3], [2, 1]])
    await s.controlled_shutdown(1)
    await s.controlled_shutdown(3)
    await s.kill(1)
    await s.start(1)
    await s.bounce(2)


@script(protocol="2.8")
async def a_small_scenario_in_2_8(s: ScriptContext) -> None:
    await _a_small_life(s)


@script(protocol="2.4")
async def a_small_scenario_in_2_4(s: ScriptContext) -> None:
    await _a_small_life(s)


@script(protocol="2.2")
async def a_small_scenario_in_2_2(s: ScriptContext) -> None:
    await _a_small_life(s)


@script(protocol="1.0")
async def a_small_scenario_in_1_0(s: ScriptContext) -> None:
    await _a_small_life(s)


@script(protocol="0.10.2")
async def a_small_scenario_in_0_10_2(s: ScriptContext) -> None:
    await _a_small_life(s)
