"""Elections on demand: the preferred leader by the znode and by the API, unclean ones by the API."""

from tests.differential.script import script
from tests.differential.script_context import ScriptContext
from tests.differential.verbs.admin import PREFERRED, UNCLEAN


async def _led_by_others(s: ScriptContext) -> None:
    """a-0 led by 2 in place of 1, a-1 led by 3 in place of 2, a-2 led by 3."""
    await s.create_topic("a", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    await s.bounce(1)
    await s.leader_asks("a", [2, 3, 1])
    await s.bounce(2)
    await s.leader_asks("a", [3, 1, 2], partition=1)


@script()
async def the_preferred_leader_by_the_api(s: ScriptContext) -> None:
    await _led_by_others(s)
    await s.elect(PREFERRED, [("a", 0)])
    await s.elect(PREFERRED, [("a", 0), ("a", 1), ("a", 2), ("a", 9), ("unknown", 0)])
    await s.elect(PREFERRED, None)
    await s.elect(PREFERRED, [("a", 0)], version=0)


@script()
async def all_preferred_leaders_by_the_api(s: ScriptContext) -> None:
    await _led_by_others(s)
    await s.create_topic("b", [[1]])
    await s.elect(PREFERRED, None)
    await s.elect(PREFERRED, None, version=1)


@script()
async def the_preferred_leader_by_the_znode(s: ScriptContext) -> None:
    await _led_by_others(s)
    await s.request_preferred(("a", 0), ("a", 1), ("a", 2))
    await s.request_preferred(("a", 0), ("unknown", 0))


@script()
async def a_preferred_leader_is_wanted_at_a_failover(s: ScriptContext) -> None:
    await _led_by_others(s)
    await s.usurp(9)
    await s.request_preferred(("a", 0), ("a", 2), ("unknown", 0))
    await s.delete_controller()
    await s.request_preferred(("a", 1))


@script()
async def the_preferred_leader_is_dead(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.kill(1)
    await s.elect(PREFERRED, [("a", 0)])
    await s.request_preferred(("a", 0))
    await s.start(1)
    await s.elect(PREFERRED, [("a", 0)])
    await s.leader_asks("a", [2, 3, 1])
    await s.elect(PREFERRED, [("a", 0)])


@script()
async def the_preferred_leader_shuts_down(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.bounce(1)
    await s.leader_asks("a", [2, 3, 1])
    await s.controlled_shutdown(1)
    await s.elect(PREFERRED, [("a", 0)])


@script(1, 2)
async def elections_of_what_has_no_leader(s: ScriptContext) -> None:
    await s.create_topic("a", [[1], [2]])
    await s.kill(1)
    await s.elect(PREFERRED, [("a", 0)])
    await s.elect(PREFERRED, None)
    await s.elect(UNCLEAN, [("a", 0), ("a", 1)])


@script(1, 2)
async def an_unclean_election_by_the_api(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2], [2, 1]])
    await s.leader_asks("a", [1])
    await s.kill(1)
    await s.elect(UNCLEAN, [("a", 0), ("a", 1)])
    await s.elect(UNCLEAN, [("a", 0)])
    await s.leader_asks("a", [2])
    await s.start(1)


@script(1, 2)
async def all_unclean_elections_by_the_api(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2], [1, 2], [2]])
    await s.leader_asks("a", [1])
    await s.leader_asks("a", [1], partition=1)
    await s.kill(1)
    await s.elect(UNCLEAN, None)


@script()
async def an_unclean_election_prefers_who_is_in_sync(s: ScriptContext) -> None:
    """An unclean election elects an in-sync replica if one is alive again."""
    await s.create_topic("a", [[1, 2, 3]])
    await s.leader_asks("a", [1, 3])
    await s.leader_asks("a", [1])
    await s.kill(1)
    await s.kill(3)
    await s.start(1)
    await s.elect(UNCLEAN, [("a", 0)])


@script(1, 2)
async def an_unclean_election_with_nobody_alive(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.kill(1)
    await s.elect(UNCLEAN, [("a", 0)])
    await s.start(1)


@script()
async def an_unclean_election_while_the_leader_shuts_down(s: ScriptContext) -> None:
    """A leader that shuts down counts as no leader."""
    await s.create_topic("a", [[1, 2]])
    await s.leader_asks("a", [1])
    await s.controlled_shutdown(1)
    await s.elect(UNCLEAN, [("a", 0)])


@script(1, 2)
async def an_unclean_election_while_the_only_replica_shuts_down(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.controlled_shutdown(1)
    await s.elect(UNCLEAN, [("a", 0)])


@script()
async def a_znode_of_preferred_leaders_that_is_nonsense(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.write("/admin/preferred_replica_election", "no json")
    await s.write("/admin/preferred_replica_election", '{"version":1}')
    await s.write("/admin/preferred_replica_election", '{"version":1,"partitions":[{"topic":"a"}]}')
    await s.kill(1)


@script()
async def preferred_leaders_named_twice(s: ScriptContext) -> None:
    await _led_by_others(s)
    await s.request_preferred(("a", 0), ("a", 0))
    await s.elect(PREFERRED, [("a", 1), ("a", 1)])


@script()
async def elections_of_a_topic_that_is_deleted(s: ScriptContext) -> None:
    await _led_by_others(s)
    await s.kill(3)
    await s.delete_topic("a")
    await s.elect(PREFERRED, [("a", 0)])
    await s.elect(UNCLEAN, [("a", 1)])
    await s.elect(PREFERRED, None)
    await s.request_preferred(("a", 0))


@script(1, 2)
async def an_election_of_what_was_never_online(s: ScriptContext) -> None:
    await s.create_topic("a", [[5], [1]])
    await s.request_preferred(("a", 1))
    await s.kill(2)


@script()
async def elections_that_nobody_waits_for(s: ScriptContext) -> None:
    """ElectLeaders with a timeout of zero, and without partitions."""
    await _led_by_others(s)
    await s.elect(PREFERRED, [("a", 0)], timeout_ms=0)
    await s.elect(PREFERRED, [])


@script(1, 2)
async def unclean_elections_are_allowed_for_all(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.create_topic("b", [[1, 2]], {"unclean.leader.election.enable": "false"})
    await s.leader_asks("a", [1])
    await s.leader_asks("b", [1])
    await s.kill(1)
    await s.configure_brokers({"unclean.leader.election.enable": "true"})
    await s.configure_brokers({"unclean.leader.election.enable": "false"})
    await s.configure_brokers({"unclean.leader.election.enable": "true"})


@script(1, 2, given={"unclean.leader.election.enable": "true"})
async def unclean_elections_are_allowed_from_the_start(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.create_topic("b", [[1, 2]], {"unclean.leader.election.enable": "false"})
    await s.leader_asks("a", [1])
    await s.leader_asks("b", [1])
    await s.kill(1)
    await s.set_config("b", {"unclean.leader.election.enable": "true"})
    await s.notify_config("b")


@script(1, 2)
async def other_configurations_change(s: ScriptContext) -> None:
    """Configs change that do not matter to the controller; notifications are malformed or in the old format."""
    await s.create_topic("a", [[1, 2]])
    await s.leader_asks("a", [1])
    await s.kill(1)
    await s.set_config("a", {"retention.ms": "1"})
    await s.notify_config("a")
    await s.notify_config("unknown")
    await s.notify("/config/changes/config_change_", "no json")
    await s.notify("/config/changes/config_change_", '{"version":9}')
    await s.set_config("a", {"unclean.leader.election.enable": "true"})
    await s.notify("/config/changes/config_change_", '{"version":1,"entity_type":"topics","entity_name":"a"}')


@script(1, 2)
async def unclean_elections_are_allowed_while_nobody_looks(s: ScriptContext) -> None:
    """A topic config allows unclean elections while there is no controller."""
    await s.create_topic("a", [[1, 2]])
    await s.leader_asks("a", [1])
    await s.kill(1)
    await s.usurp(9)
    await s.set_config("a", {"unclean.leader.election.enable": "true"})
    await s.notify_config("a")
    await s.delete_controller()
