"""Features, producer ids, ACLs, sessions that end, two candidates."""

from tests.differential.script import script
from tests.differential.script_context import ScriptContext

# ---- features and producer ids


@script()
async def features_are_refused(s: ScriptContext) -> None:
    await s.update_feature("group.coordinator.version", 1)
    await s.update_feature("", 1)
    await s.update_feature("metadata.version", 20)
    await s.update_feature("anything", 0, 2)
    await s.update_feature("anything", 0, 1)
    await s.update_feature("anything", 3, 3)
    await s.update_feature("anything", 3, 9)


@script(1, 2, cold=True)
async def features_are_there_before_the_controller(s: ScriptContext) -> None:
    await s.write("/feature", '{"version":2,"status":0,"features":{}}')
    await s.start_controller()
    await s.write("/feature", '{"version":1,"status":1,"features":{}}')
    await s.delete_controller()


@script(1, 2, protocol="2.6")
async def features_before_they_were_invented(s: ScriptContext) -> None:
    """UpdateFeatures in a protocol version without features."""
    await s.delete_controller()
    await s.update_feature("anything", 1)


@script()
async def producer_ids_are_handed_out(s: ScriptContext) -> None:
    await s.allocate_producer_ids(1)
    await s.allocate_producer_ids(2)
    await s.allocate_producer_ids(1, stale_broker=True)
    await s.allocate_producer_ids(9)
    await s.bounce(2)
    await s.allocate_producer_ids(2)
    await s.delete_controller()
    await s.allocate_producer_ids(1)


@script()
async def producer_ids_run_out(s: ScriptContext) -> None:
    block = '{"version":1,"broker":1,"block_start":"9223372036854774000","block_end":"9223372036854774999"}'
    await s.write("/latest_producer_id_block", block)
    await s.allocate_producer_ids(1)
    await s.write("/latest_producer_id_block", "no json")
    await s.allocate_producer_ids(1)


@script(1, cold=True, given={"delegation.token.secret.key": "s", "delegation.token.expiry.check.interval.ms": "100"})
async def delegation_tokens_expire(s: ScriptContext) -> None:
    await s.issue_token("good")
    await s.start_controller()
    await s.issue_token("over", expiry_ms=2)
    await s.issue_token("used-up", max_ms=2)
    await s.delete_controller()
    await s.issue_token("late", expiry_ms=3)


# ---- ACLs


@script()
async def zookeeper_forbids_a_new_state(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2], [1, 3]])
    await s.forbid_writes("/brokers/topics/a/partitions/0/state")
    await s.kill(1)
    await s.alter_isr("a", 1, [1, 2], 0, 0)
    await s.allow_writes("/brokers/topics/a/partitions/0/state")
    await s.start(1)


@script()
async def zookeeper_forbids_an_isr_change(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.forbid_writes("/brokers/topics/a/partitions/0/state")
    await s.alter_isr("a", 1, [1, 2], 0, 0)
    await s.controlled_shutdown(1)
    await s.allow_writes("/brokers/topics/a/partitions/0/state")
    await s.alter_isr("a", 1, [1, 2], 0, 0)


@script()
async def zookeeper_forbids_to_remove_notifications(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.write_state("a", 1, [1, 2], 0)
    await s.forbid_writes("/isr_change_notification")
    await s.kill(3)


@script()
async def zookeeper_forbids_a_first_state(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.forbid_writes("/brokers/topics/a/partitions")
    await s.grow_topic("a", [[1, 2, 3], [2, 3]])
    await s.kill(1)
    await s.allow_writes("/brokers/topics/a/partitions")
    await s.start(1)


@script()
async def zookeeper_forbids_a_deletion(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.forbid_writes("/admin/delete_topics")
    await s.delete_topics("a")
    await s.allow_writes("/admin/delete_topics")
    await s.delete_topics("a")


@script()
async def zookeeper_forbids_a_reassignment(s: ScriptContext) -> None:
    await s.create_topic("a", [[1], [1]])
    await s.forbid_writes("/brokers/topics/a")
    await s.reassign({("a", 0): [2]})
    await s.allow_writes("/brokers/topics/a")
    await s.reassign({("a", 0): [2]})


@script()
async def zookeeper_forbids_to_count_epochs(s: ScriptContext) -> None:
    """Nobody is controller until it may be written again."""
    await s.create_topic("a", [[1, 2]])
    await s.forbid_writes("/latest_producer_id_block")
    await s.allocate_producer_ids(1)
    await s.allow_writes("/latest_producer_id_block")
    await s.allocate_producer_ids(1)


# ---- sessions end


@script()
async def the_controllers_session_ends(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 1]])
    await s.expire()
    await s.kill(1)
    await s.expire()


@script()
async def the_controllers_session_ends_while_a_broker_is_slow(s: ScriptContext) -> None:
    s.brokers[3].hold("LeaderAndIsr")
    await s.create_topic("a", [[1, 2, 3]])
    await s.expire()
    await s.release(3, "LeaderAndIsr")


@script()
async def the_session_ends_of_a_node_that_is_not_controller(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.usurp(9)
    await s.expire()
    await s.delete_controller()


@script()
async def the_controllers_session_ends_in_a_shutdown(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.controlled_shutdown(1)
    await s.expire()
    await s.kill(1)


# ---- two candidates


@script()
async def another_node_takes_over(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 1]])
    await s.start_candidate(101)
    await s.stop_node(100)
    await s.kill(1)


@script()
async def controllership_goes_to_and_fro(s: ScriptContext) -> None:
    """Two nodes become controller by turns."""
    await s.create_topic("a", [[1, 2, 3]])
    await s.start_candidate(101)
    await s.controlled_shutdown(3)
    await s.expire(100)
    await s.kill(1)
    await s.expire(101)
    await s.start(1)


@script()
async def another_node_takes_over_in_the_middle_of_all(s: ScriptContext) -> None:
    """Another node becomes controller during a reassignment and a deletion."""
    await s.create_topic("a", [[1, 2]])
    await s.create_topic("b", [[3, 1]])
    await s.start_candidate(101)
    await s.reassign({("a", 0): [3, 2]})
    await s.kill(3)
    await s.delete_topic("b")
    await s.stop_node(100)
    await s.start(3)


@script(1, 2)
async def a_candidate_joins_and_leaves(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.start_candidate(101)
    await s.stop_node(101)
    await s.kill(1)
