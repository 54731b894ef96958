"""What nobody should do, and somebody does: malformed znodes, requests that make no sense."""

from tests.differential.script import script
from tests.differential.script_context import ScriptContext


@script()
async def an_isr_change_to_nobody(s: ScriptContext) -> None:
    """AlterPartition with an empty ISR."""
    await s.create_topic("a", [[1, 2, 3]])
    await s.alter_isr("a", 1, [], 0, 0)


@script()
async def an_isr_change_that_names_a_broker_twice(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.alter_isr("a", 1, [1, 1], 0, 0)
    await s.kill(1)


@script(1, 2, 3, 4)
async def isr_changes_beyond_the_assignment(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.alter_isr("a", 1, [1, 4], 0, 0)


@script()
async def isr_changes_by_a_broker_that_does_not_lead(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.alter_isr("a", 2, [1, 2], 0, 0)


@script()
async def an_isr_change_with_an_unknown_recovery_state(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.alter_isr("a", 1, [1], 0, 0, recovery=7)


@script()
async def notifications_that_nobody_can_read(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.notify("/isr_change_notification/isr_change_", "no json")
    await s.notify("/isr_change_notification/isr_change_", '{"version":1}')
    await s.notify("/log_dir_event_notification/log_dir_event_", "no json")
    await s.notify("/log_dir_event_notification/log_dir_event_", '{"version":1,"broker":9,"event":1}')
    await s.kill(1)


@script()
async def a_state_that_nobody_can_read(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[1, 2, 3]])
    await s.write("/brokers/topics/a/partitions/0/state", "no json")
    await s.kill(1)
    await s.kill(2)


@script()
async def a_state_that_is_gone(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[1, 2, 3]])
    await s.write("/brokers/topics/a/partitions/0/state", None)
    await s.kill(1)


@script()
async def a_state_that_is_there_before_its_topic(s: ScriptContext) -> None:
    state = '{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":5,"isr":[2,3]}'
    await s.write("/brokers/topics/b/partitions/0/state", state)
    await s.create_topic("a", [[1, 2, 3]])


@script()
async def a_topic_is_removed_by_hand(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[1, 2, 3]])
    await s.write("/brokers/topics/a", None)
    await s.kill(1)


@script()
async def nobody_can_read_who_is_controller(s: ScriptContext) -> None:
    """The content of `/controller` is malformed."""
    await s.create_topic("a", [[1, 2, 3]])
    await s.write("/controller", "no json")
    await s.kill(1)
    await s.delete_controller()


@script()
async def the_controller_epoch_is_moved(s: ScriptContext) -> None:
    """Somebody raises the controller epoch: the controller's next write fails, it resigns and is elected again."""
    await s.create_topic("a", [[1, 2, 3]])
    await s.write("/controller_epoch", "5")
    await s.kill(1)


@script(1, 2)
async def registrations_of_older_brokers(s: ScriptContext) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.start(3)
    await s.older_registration(3, 4)
    await s.older_registration(3, 3)
    await s.older_registration(3, 2)
