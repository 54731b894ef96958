"""Reassignments, by the API and by the znode: both phases, cancelling, overriding, what gets in between."""

from tests.differential.script import script
from tests.differential.script_context import ScriptContext


@script(1, 2)
async def one_replica_moves(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.reassign({("a", 0): [2]})
    await s.list_reassignments()
    await s.leader_asks("a", [1, 2])
    await s.list_reassignments()
    await s.kill(1)


@script(1, 2)
async def one_replica_moves_by_the_znode(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.request_reassignment({("a", 0): [2]})
    await s.list_reassignments([("a", 0)])
    await s.leader_asks("a", [1, 2])


@script(1, 2, 3, 4)
async def one_of_three_replicas_moves(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 3, 1]])
    await s.reassign({("a", 0): [1, 2, 4], ("a", 1): [4, 3, 1]})
    await s.leader_asks("a", [1, 2, 3, 4])
    await s.leader_asks("a", [2, 3, 1, 4], partition=1)


@script(1, 2, 3, 4, 5, 6)
async def all_replicas_move(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.reassign({("a", 0): [4, 5, 6]})
    await s.leader_asks("a", [1, 2, 3, 4])
    await s.leader_asks("a", [1, 2, 3, 4, 6])
    await s.leader_asks("a", [1, 2, 3, 4, 6, 5])
    await s.elect(0, None)


@script()
async def replicas_change_their_order(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.reassign({("a", 0): [3, 2, 1]})
    await s.elect(0, [("a", 0)])
    await s.request_reassignment({("a", 0): [2, 1, 3]})


@script()
async def a_reassignment_to_the_same_replicas(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.reassign({("a", 0): [1, 2, 3]})
    await s.request_reassignment({("a", 0): [1, 2, 3]})


@script()
async def fewer_replicas(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3], [1, 2, 3]])
    await s.reassign({("a", 0): [1], ("a", 1): [3]})


@script()
async def more_replicas(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.reassign({("a", 0): [3, 1, 2]})
    await s.leader_asks("a", [1, 3])
    await s.leader_asks("a", [1, 3, 2])


@script()
async def a_reassignment_is_cancelled(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.reassign({("a", 0): [3, 2]})
    await s.reassign({("a", 0): None})
    await s.list_reassignments()
    await s.reassign({("a", 0): None})


@script()
async def a_reassignment_is_cancelled_when_the_new_replica_is_in_sync(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.reassign({("a", 0): [2, 3]})
    await s.leader_asks("a", [1, 2])
    await s.reassign({("a", 0): None})


@script(1, 2, 3, 4)
async def a_reassignment_is_overridden(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.reassign({("a", 0): [3, 2]})
    await s.reassign({("a", 0): [4, 2]})
    await s.leader_asks("a", [1, 2, 4])


@script(1, 2, 3, 4)
async def a_reassignment_by_the_znode_is_overridden_by_the_api(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2], [1, 2]])
    await s.request_reassignment({("a", 0): [3, 2], ("a", 1): [3, 2]})
    await s.reassign({("a", 0): [4, 2]})
    await s.leader_asks("a", [1, 2, 4])
    await s.leader_asks("a", [1, 2, 3], partition=1)


@script(1, 2, 3, 4)
async def a_reassignment_by_the_znode_is_cancelled_by_the_api(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.request_reassignment({("a", 0): [3, 2]})
    await s.reassign({("a", 0): None})
    await s.request_reassignment({("a", 0): [4, 2]})
    await s.leader_asks("a", [1, 2, 4])


@script(1, 2)
async def a_new_replica_is_dead(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.reassign({("a", 0): [3]})
    await s.request_reassignment({("a", 0): [3]})
    await s.start(3)
    await s.leader_asks("a", [1, 3])


@script()
async def a_new_replica_is_away(s: ScriptContext) -> None:
    """The new replica's broker is dead when the reassignment is requested, and returns later."""
    await s.create_topic("a", [[1]])
    await s.kill(3)
    await s.request_reassignment({("a", 0): [3]})
    await s.kill(2)
    await s.start(3)
    await s.leader_asks("a", [1, 3])


@script()
async def a_reassignment_to_brokers_that_never_were_is_cancelled(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.create_topic("b", [[2, 3]])
    await s.request_reassignment({("a", 0): [7, 1], ("b", 0): [3, 8]})
    await s.kill(1)
    await s.delete_controller()
    await s.list_reassignments()
    await s.reassign({("a", 0): None})
    await s.start(1)
    await s.reassign({("b", 0): [1, 3]})
    await s.leader_asks("b", [2, 3, 1])


@script()
async def a_new_replica_shuts_down(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.controlled_shutdown(3)
    await s.reassign({("a", 0): [3]})
    await s.reassign({("a", 0): [2]})
    await s.controlled_shutdown(2)
    await s.leader_asks("a", [1, 2])
    await s.bounce(2)
    await s.leader_asks("a", [1, 2])


@script()
async def reassignments_that_make_no_sense(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2], [2]])
    await s.reassign({("a", 0): []})
    await s.reassign({("a", 0): [1, 1]})
    await s.reassign({("a", 0): [-1]})
    await s.reassign({("a", 0): [77]})
    await s.reassign({("a", 7): [1]})
    await s.reassign({("unknown", 0): [1]})
    await s.reassign({("unknown", 0): None})
    await s.reassign({("a", 0): None, ("a", 1): [1]})
    await s.list_reassignments([("a", 0), ("a", 1), ("a", 9), ("unknown", 0)])
    await s.list_reassignments([])


@script()
async def several_reassignments_in_one_znode(s: ScriptContext) -> None:
    await s.create_topic("a", [[1], [2], [3]])
    await s.create_topic("b", [[1]])
    await s.request_reassignment({("a", 0): [2], ("a", 1): [2], ("b", 0): [3], ("unknown", 0): [1], ("a", 9): [1]})
    await s.leader_asks("a", [1, 2])
    await s.leader_asks("b", [1, 3])


@script()
async def the_znode_of_reassignments_is_nonsense(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.write("/admin/reassign_partitions", "no json")
    await s.delete_controller()
    await s.write("/admin/reassign_partitions", None)
    await s.write("/admin/reassign_partitions", '{"version":1,"partitions":[]}')


@script()
async def the_znode_of_reassignments_holds_what_nobody_knows(s: ScriptContext) -> None:
    """The reassignment znode has an unknown field."""
    await s.create_topic("a", [[1]])
    content = '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[2],"log_dirs":["any"]}]}'
    await s.write("/admin/reassign_partitions", content)
    await s.delete_controller()


@script()
async def a_reassignment_by_the_znode_with_replicas_named_twice(s: ScriptContext) -> None:
    await s.create_topic("a", [[1], [1]])
    twice, none = '{"topic":"a","partition":0,"replicas":[2,2]}', '{"topic":"a","partition":1,"replicas":[]}'
    content = f'{{"version":1,"partitions":[{twice},{none}]}}'
    await s.write("/admin/reassign_partitions", content)


@script()
async def a_failover_while_a_replica_catches_up(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.reassign({("a", 0): [3, 2]})
    await s.delete_controller()
    await s.list_reassignments()
    await s.leader_asks("a", [1, 2, 3])


@script()
async def a_failover_while_a_replica_catches_up_for_the_znode(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2], [2, 1]])
    await s.request_reassignment({("a", 0): [3, 2], ("a", 1): [3]})
    await s.leader_asks("a", [1, 2, 3])
    await s.delete_controller()
    await s.leader_asks("a", [2, 1, 3], partition=1)


@script()
async def reassignments_are_requested_while_nobody_looks(s: ScriptContext) -> None:
    """Reassignments are requested by znode while there is no controller."""
    await s.create_topic("a", [[1, 2], [2, 1]])
    await s.usurp(9)
    await s.request_reassignment({("a", 0): [3, 2], ("a", 1): [1, 2], ("unknown", 0): [1]})
    await s.delete_controller()
    await s.leader_asks("a", [1, 2, 3])


@script()
async def the_leader_dies_while_a_replica_catches_up(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.reassign({("a", 0): [3, 2]})
    await s.kill(1)
    await s.leader_asks("a", [2, 3])


@script(1, 2)
async def the_only_old_replica_dies_while_a_replica_catches_up(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.reassign({("a", 0): [2]})
    await s.kill(1)
    await s.start(1)
    await s.leader_asks("a", [1, 2])


@script()
async def the_new_replica_bounces_while_it_catches_up(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.reassign({("a", 0): [3, 2]})
    await s.bounce(3)
    await s.kill(3)
    await s.start(3)
    await s.leader_asks("a", [1, 2, 3])


@script()
async def a_removed_replica_is_dead(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.kill(2)
    await s.reassign({("a", 0): [1, 3]})
    await s.leader_asks("a", [1, 3])
    await s.start(2)


@script()
async def a_replica_that_stays_is_dead(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.kill(2)
    await s.reassign({("a", 0): [2, 3]})
    await s.leader_asks("a", [1, 3])
    await s.start(2)
    await s.leader_asks("a", [1, 3, 2])


@script()
async def a_reassignment_of_what_is_offline(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.kill(1)
    await s.reassign({("a", 0): [2]})
    await s.reassign({("a", 0): [1, 2]})
    await s.start(1)
    await s.leader_asks("a", [1, 2])


@script()
async def a_reassignment_to_who_cannot_lead(s: ScriptContext) -> None:
    """All target replicas are in the ISR, but dead."""
    await s.create_topic("a", [[1, 2]])
    await s.kill(1)
    await s.kill(2)
    await s.reassign({("a", 0): [2]})
    await s.start(2)


@script(1, 2)
async def a_reassignment_of_what_was_never_online(s: ScriptContext) -> None:
    await s.create_topic("a", [[5]])
    await s.reassign({("a", 0): [2]})
    await s.start(5)
    await s.leader_asks("a", [5, 2])


@script()
async def a_reassignment_that_was_written_by_hand(s: ScriptContext) -> None:
    """Somebody writes adding and removing replicas into the topic znode; only a new controller reads them."""
    await s.create_topic("a", [[1, 2]])
    await s.write_assignment("a", [3, 1, 2], adding=[3], removing=[1])
    await s.delete_controller()
    await s.leader_asks("a", [1, 2, 3])


@script()
async def leaders_that_write_their_isr_themselves_end_a_reassignment(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.reassign({("a", 0): [2]})
    await s.write_state("a", 1, [1, 2], 1)
    await s.notify_isr("a")


@script(protocol="2.6")
async def a_reassignment_in_2_6(s: ScriptContext) -> None:
    """The state is watched: the notification is not needed."""
    await s.create_topic("a", [[1]])
    await s.request_reassignment({("a", 0): [2]})
    await s.write_state("a", 1, [1, 2], 1)


@script()
async def a_deletion_waits_for_a_reassignment(s: ScriptContext) -> None:
    await s.create_topic("a", [[1], [2]])
    await s.reassign({("a", 0): [3]})
    await s.delete_topic("a")
    await s.create_partitions("a", 3)
    await s.leader_asks("a", [1, 3])


@script()
async def a_deletion_that_waits_for_a_reassignment_at_a_failover(s: ScriptContext) -> None:
    await s.create_topic("a", [[1], [2]])
    await s.reassign({("a", 0): [3]})
    await s.delete_topic("a")
    await s.delete_controller()
    await s.leader_asks("a", [1, 3])


@script()
async def a_reassigned_topic_does_not_grow(s: ScriptContext) -> None:
    await s.create_topic("a", [[1], [2]])
    await s.reassign({("a", 0): [3]})
    await s.create_partitions("a", 3, [[1]])
    await s.reassign({("a", 0): None})
    await s.create_partitions("a", 3, [[1]])


@script(1, 2, 3, 4)
async def the_leader_is_dropped_by_an_override(s: ScriptContext) -> None:
    """KAFKA-14808: the adding replica leads, and a new reassignment does not want it."""
    await s.create_topic("a", [[1, 2]])
    await s.reassign({("a", 0): [3, 4]})
    await s.leader_asks("a", [1, 2, 3])
    await s.kill_together(1, 2)
    await s.reassign({("a", 0): [4]})
    await s.start(1)


@script()
async def the_leader_is_dropped_by_cancelling(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.reassign({("a", 0): [2, 3]})
    await s.leader_asks("a", [1, 2])
    await s.kill(1)
    await s.reassign({("a", 0): None})
    await s.start(1)


@script()
async def a_preferred_election_while_a_replica_catches_up(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.reassign({("a", 0): [2, 1]})
    await s.elect(0, [("a", 0)])
    await s.leader_asks("a", [1, 2])
    await s.elect(0, [("a", 0)])


@script()
async def a_shutdown_while_replicas_catch_up(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2], [2, 1]])
    await s.reassign({("a", 0): [3, 2], ("a", 1): [2, 3]})
    await s.controlled_shutdown(1)
    await s.leader_asks("a", [2, 3])
    await s.leader_asks("a", [2, 3], partition=1)
    await s.kill(1)
    await s.start(1)


@script()
async def a_reassignment_whose_isr_change_is_refused(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.reassign({("a", 0): [2]})
    await s.alter_isr("a", 1, [1, 2], 0, 1)
    await s.alter_isr("a", 1, [1, 2], 1, 0)
    await s.alter_isr("a", 1, [1, 2], 1, 1)


@script()
async def a_session_ends_while_a_replica_catches_up(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.reassign({("a", 0): [3, 2]})
    await s.expire()
    await s.leader_asks("a", [1, 2, 3])


@script()
async def the_topic_is_removed_by_hand_while_a_replica_catches_up(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.create_topic("b", [[1, 2]])
    await s.reassign({("a", 0): [3, 2]})
    await s.write("/brokers/topics/a", None)
    await s.list_reassignments()
    await s.kill(1)


@script()
async def a_reassignment_by_the_znode_is_under_way_by_the_api(s: ScriptContext) -> None:
    await s.create_topic("a", [[1]])
    await s.reassign({("a", 0): [2]})
    await s.request_reassignment({("a", 0): [2]})
    await s.leader_asks("a", [1, 2])
