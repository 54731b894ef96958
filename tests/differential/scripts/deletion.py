"""Topics are deleted, by the znode as tools do and by the API; what holds a deletion up, and what resumes it."""

from tests.differential.script import STORAGE_ERROR, script
from tests.differential.script_context import ScriptContext


@script()
async def a_topic_is_deleted(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 3]], {"retention.ms": "1000"})
    await s.create_topic("b", [[1, 2, 3]])
    await s.delete_topic("a")
    await s.kill(1)


@script()
async def topics_are_deleted_together(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 3]])
    await s.create_topic("b", [[3, 1]])
    await s.create_topic("c", [[2]])
    await s.delete_topic("a", "b", "c")


@script()
async def a_topic_is_deleted_and_created_anew(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.delete_topic("a")
    await s.create_topic("a", [[2, 3], [1]])
    await s.kill(2)
    await s.delete_topic("a")
    await s.start(2)
    await s.create_topic("a", [[2, 1]])


@script()
async def a_deletion_waits_for_a_dead_broker(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 1]])
    await s.kill(3)
    await s.delete_topic("a")
    await s.kill(1)
    await s.start(1)
    await s.start(3)


@script(1, 2)
async def a_deletion_of_a_topic_without_leaders(s: ScriptContext) -> None:
    await s.create_topic("a", [[1], [2]])
    await s.kill(1)
    await s.delete_topic("a")
    await s.start(1)


@script(1, 2)
async def a_deletion_of_a_topic_that_was_never_online(s: ScriptContext) -> None:
    await s.create_topic("a", [[4, 5]])
    await s.delete_topic("a")
    await s.start(4)
    await s.start(5)


@script()
async def the_deletion_of_what_does_not_exist(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.delete_topic("unknown")
    await s.delete_topic("other", "a")


@script()
async def a_broker_dies_before_it_deleted(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    s.brokers[3].hold("StopReplica")
    await s.delete_topic("a")
    await s.kill(3)
    await s.start(3)


@script()
async def a_broker_bounces_before_it_deleted(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [3]])
    s.brokers[3].hold("StopReplica")
    await s.delete_topic("a")
    await s.bounce(3)
    await s.release(3, "StopReplica")


@script()
async def two_brokers_die_before_they_deleted(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    s.brokers[2].hold("StopReplica")
    s.brokers[3].hold("StopReplica")
    await s.delete_topic("a")
    await s.kill(2)
    await s.start(2)
    await s.kill(3)
    await s.start(3)


@script()
async def a_broker_cannot_delete(s: ScriptContext) -> None:
    """One broker answers StopReplica with an error."""
    await s.create_topic("a", [[1, 2, 3], [2, 1]])
    s.brokers[2].errors["StopReplica"] = STORAGE_ERROR
    await s.delete_topic("a")
    s.brokers[2].errors.clear()
    await s.start(4)
    await s.bounce(3)


@script()
async def nobody_can_delete(s: ScriptContext) -> None:
    """All brokers answer StopReplica with an error."""
    await s.create_topic("a", [[1, 2]])
    for broker in (1, 2):
        s.brokers[broker].errors["StopReplica"] = STORAGE_ERROR
    await s.delete_topic("a")
    for broker in (1, 2):
        s.brokers[broker].errors.clear()
    await s.bounce(1)


@script()
async def a_topic_grows_while_it_is_deleted(s: ScriptContext) -> None:
    """KAFKA-6612: what was added is taken back."""
    await s.create_topic("a", [[1, 2, 3]])
    s.brokers[3].hold("StopReplica")
    await s.delete_topic("a")
    await s.grow_topic("a", [[1, 2, 3], [1, 2]])
    await s.release(3, "StopReplica")


@script()
async def a_topic_grows_while_its_deletion_waits(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2]])
    await s.kill(3)
    await s.delete_topic("a")
    await s.grow_topic("a", [[1, 2, 3], [2], [1, 2]])
    await s.start(3)


@script()
async def a_failover_in_the_middle_of_a_deletion(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [3, 2]])
    s.brokers[3].hold("StopReplica")
    await s.delete_topic("a")
    await s.delete_controller()
    await s.release(3, "StopReplica")


@script()
async def a_failover_while_a_deletion_waits(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [3, 2]])
    await s.create_topic("b", [[1]])
    await s.kill(3)
    await s.delete_topic("a")
    await s.delete_controller()
    await s.delete_topic("b")
    await s.start(3)


@script()
async def deletions_are_requested_while_nobody_looks(s: ScriptContext) -> None:
    """Topics are marked for deletion while there is no controller."""
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[1, 2]])
    await s.usurp(9)
    await s.delete_topic("a", "unknown")
    await s.kill(3)
    await s.delete_topic("b")
    await s.delete_controller()
    await s.start(3)


@script(given={"delete.topic.enable": "false"})
async def deletion_is_disabled(s: ScriptContext) -> None:
    """KAFKA-3175: the topic stays usable, the request goes."""
    await s.create_topic("a", [[1, 2, 3]])
    await s.delete_topic("a")
    await s.delete_topics("a")
    await s.delete_topics("a", version=2)
    await s.kill(1)
    await s.usurp(9)
    await s.delete_topic("a")
    await s.delete_controller()


@script()
async def a_broker_shutting_down_holds_a_deletion_up(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2]])
    await s.controlled_shutdown(2)
    await s.delete_topic("a")
    await s.kill(2)
    await s.start(2)


@script()
async def a_topic_queued_for_deletion_takes_no_part(s: ScriptContext) -> None:
    """Elections, ISR changes, shutdowns and reassignments do not change a topic queued for deletion."""
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[2, 1, 3]])
    await s.kill(3)
    await s.delete_topic("a")
    await s.alter_isr("a", 1, [1], 1, 1)
    await s.controlled_shutdown(1)
    await s.reassign({("a", 0): [2, 1], ("b", 0): [1, 2]})
    await s.elect(0, [("a", 0), ("b", 0)])
    await s.kill(1)
    await s.create_topics({"a": [[1]]})
    await s.create_partitions("a", 2)
    await s.start(3)
    await s.start(1)


@script()
async def topics_are_deleted_by_the_api(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[2, 3], [1]])
    await s.create_topic("c", [[3]])
    await s.create_topic("d", [[3]])
    await s.delete_topics("a", "unknown")
    await s.delete_topics("b", "c", by_id=True)
    await s.delete_topics("d", version=1)
    await s.delete_topics("d")
    await s.delete_topics("unknown", by_id=True)


@script()
async def a_deletion_by_the_api_that_takes_its_time(s: ScriptContext) -> None:
    """DeleteTopics while a replica's broker is dead; the requests time out."""
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[1, 2]])
    await s.kill(3)
    await s.delete_topics("a", timeout_ms=50)
    await s.delete_topics("a", "b", timeout_ms=0)
    await s.start(3)


@script()
async def deletions_asked_of_nobody(s: ScriptContext) -> None:
    """Topic requests sent to a node that is no longer controller."""
    await s.create_topic("a", [[1, 2, 3]])
    await s.usurp(9)
    await s.delete_topics("a")
    await s.create_topics({"b": [[1]]})
    await s.create_partitions("a", 3)
    await s.reassign({("a", 0): [2]})
    await s.list_reassignments()
    await s.elect(0, [("a", 0)])
    await s.elect(1, None)
    await s.update_feature("anything", 1)
    await s.allocate_producer_ids(1)


@script()
async def a_deleted_topics_znode_is_gone_already(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[1, 2, 3]])
    await s.kill(3)
    await s.delete_topic("a")
    await s.write("/brokers/topics/a", None)
    await s.start(3)


@script()
async def the_request_for_a_deletion_is_taken_back(s: ScriptContext) -> None:
    """The deletion request is removed from ZooKeeper before the topic is deleted."""
    await s.create_topic("a", [[1, 2, 3]])
    await s.kill(3)
    await s.delete_topic("a")
    await s.write("/admin/delete_topics/a", None)
    await s.start(3)


@script(1, 2, 3, 4)
async def deletions_and_creations_while_brokers_come_and_go(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2], [3, 4]])
    await s.create_topic("b", [[2, 3, 4]])
    await s.kill(4)
    await s.delete_topic("b")
    await s.create_topic("c", [[4, 1], [1, 4]])
    await s.kill(2)
    await s.start(4)
    await s.start(2)
    await s.delete_topic("a", "c")
    await s.create_topic("b", [[1, 2]])


@script()
async def a_lost_answer_of_a_broker_that_deleted(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    s.brokers[2].break_once("StopReplica")
    await s.delete_topic("a")


@script()
async def a_disk_fails_in_a_topic_that_is_deleted(s: ScriptContext) -> None:
    s.brokers[3].errors["LeaderAndIsr"] = STORAGE_ERROR
    await s.create_topic("a", [[1, 2, 3]])
    await s.delete_topic("a")
    s.brokers[3].errors.clear()
    await s.bounce(3)
