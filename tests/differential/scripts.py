"""The scripts: worked traces of leader and epoch arithmetic, and the cases of Kafka's own controller tests, as facts.

A state is written leader / ISR / leader epoch / partition epoch. Names of facts: ControllerIntegrationTest,
PartitionStateMachineTest, ReplicaStateMachineTest, PartitionLeaderElectionAlgorithmsTest, KafkaControllerTest (3.9).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tests.differential.stage import Stage

STORAGE_ERROR = 56


@dataclass(frozen=True)
class Script:
    run: Callable[[Stage], Awaitable[None]]
    brokers: Sequence[int]
    is_cold: bool
    """It starts the controller itself."""
    protocol: str
    """The controller's inter.broker.protocol.version."""

    @property
    def name(self) -> str:
        return self.run.__name__

    async def play(self, stage: Stage) -> None:
        await stage.open(self.brokers)
        if not self.is_cold:
            await stage.start_controller()
        await self.run(stage)


SCRIPTS: dict[str, Script] = {}


def script(
    *brokers: int, cold: bool = False, protocol: str = "3.9"
) -> Callable[[Callable[[Stage], Awaitable[None]]], Script]:
    def keep(run: Callable[[Stage], Awaitable[None]]) -> Script:
        made = SCRIPTS[run.__name__] = Script(run, brokers or (1, 2, 3), cold, protocol)
        return made

    return keep


# ---- brokers come and go


@script()
async def leader_dies_returns_and_rejoins(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.kill(1)
    await s.start(1)
    await s.alter_isr("a", 2, [2, 3, 1], 1, 1)


@script()
async def follower_dies_returns_and_rejoins(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.kill(3)
    await s.start(3)
    await s.alter_isr("a", 1, [1, 2, 3], 1, 1)


@script(1, 2)
async def only_replica_dies_and_returns(s: Stage) -> None:
    await s.create_topic("a", [[1]])
    await s.kill(1)
    await s.start(1)


@script()
async def brokers_die_one_after_the_other_and_return_in_the_same_order(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    for broker in (1, 2, 3):
        await s.kill(broker)
    for broker in (1, 2, 3):
        await s.start(broker)


@script()
async def brokers_return_last_one_first(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    for broker in (3, 2, 1):
        await s.kill(broker)
    for broker in (3, 2, 1):
        await s.start(broker)


@script(1, 2, 3, 4)
async def many_assignments_lose_a_broker(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 1, 4], [3, 4, 2], [4, 2, 1], [2, 3], [2], [1, 4]])
    await s.create_topic("b", [[2, 4, 1]])
    await s.kill(2)
    await s.start(2)
    await s.kill(4)


@script()
async def leader_bounces(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 3, 1]])
    await s.bounce(1)
    await s.alter_isr("a", 2, [2, 3, 1], 1, 1)


@script(1, 2)
async def only_replica_bounces(s: Stage) -> None:
    await s.create_topic("a", [[1]])
    await s.bounce(1)


@script(1, 2)
async def a_session_expires(s: Stage) -> None:
    await s.create_topic("a", [[3, 1], [1, 3]])
    await s.start(3, short_session=True)
    await s.vanish(3)


@script(1, 2)
async def a_new_broker_without_replicas(s: Stage) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.start(3)
    await s.kill(3)


@script(1, 2)
async def a_registration_changes(s: Stage) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.change_endpoints(2, "east")
    await s.change_endpoints(2, "west")


@script(1, 2, 3, 4)
async def two_brokers_die_at_once(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 1, 4], [1, 2], [3, 1, 2], [1], [4, 3, 1]])
    await s.kill_together(1, 2)
    await s.start(2)
    await s.start(1)


@script(1, 2, 3, 4)
async def all_brokers_die_at_once(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3], [4, 2], [3]])
    await s.kill_together(1, 2, 3, 4)
    await s.start(3)
    await s.start(2)
    await s.start(1)
    await s.start(4)


@script(1, 2, 3, 4)
async def one_bounces_while_another_dies(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 1], [3, 1, 4], [2], [1]])
    await s.bounce(1, others_die=[2])
    await s.start(2)


@script(1, 2, 3, 4)
async def all_die_at_once_under_unclean_elections(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3], [4, 2]], {"unclean.leader.election.enable": "true"})
    await s.kill_together(1, 2, 3)
    await s.start(3)
    await s.start(2)


# ---- topics


@script()
async def topics_are_created_and_grow(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[2, 3], [3, 1]], {"retention.ms": "1000"})
    await s.grow_topic("a", [[1, 2, 3], [2, 3, 1], [3]])
    await s.grow_topic("a", [[1, 2, 3], [2, 3, 1], [3], [1, 2]])


@script(1, 2)
async def a_topic_whose_replicas_all_come_later(s: Stage) -> None:
    await s.create_topic("a", [[3, 4]])
    await s.start(4)
    await s.start(3)


@script(1, 2)
async def a_topic_with_some_replicas_dead(s: Stage) -> None:
    await s.create_topic("a", [[3, 1, 2]])
    await s.grow_topic("a", [[3, 1, 2], [4, 2]])
    await s.start(3)


@script()
async def a_topic_without_an_id_is_given_one(s: Stage) -> None:
    await s.create_topic_without_id("a", [[1, 2]])
    await s.kill(1)


@script()
async def a_grown_topic_keeps_its_first_assignment(s: Stage) -> None:
    """A changed list of replicas of a known partition is no order."""
    await s.create_topic("a", [[1, 2]])
    await s.grow_topic("a", [[3, 2], [3, 1]])
    await s.kill(1)


# ---- controlled shutdown


@script()
async def the_leader_shuts_down(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3], [1, 3]])
    await s.controlled_shutdown(1)
    await s.kill(1)
    await s.start(1)


@script()
async def a_follower_shuts_down(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.controlled_shutdown(3)
    await s.controlled_shutdown(3)
    await s.kill(3)


@script(1, 2)
async def the_last_in_sync_replica_shuts_down(s: Stage) -> None:
    await s.create_topic("a", [[1, 2], [1]])
    await s.kill(2)
    await s.controlled_shutdown(1)
    await s.start(2)
    await s.controlled_shutdown(1)


@script()
async def one_shuts_down_after_the_other(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 3, 1], [3, 1, 2], [2], [2, 1]])
    for broker in (1, 2, 3):
        await s.controlled_shutdown(broker)
    await s.kill(1)
    await s.start(1)


@script()
async def what_a_shutdown_is_refused_for(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.controlled_shutdown(1, stale_broker=True)
    await s.controlled_shutdown(9)
    await s.controlled_shutdown(9, version=1)
    await s.controlled_shutdown(1, version=1)
    await s.usurp(2)
    await s.controlled_shutdown(2)


@script()
async def a_broker_shutting_down_is_not_eligible(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.controlled_shutdown(2)
    await s.alter_isr("a", 1, [1, 2, 3], 1, 1)
    await s.kill(1)
    await s.kill(3)
    await s.bounce(2)


# ---- ISR changes


@script()
async def isr_shrinks_and_grows(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.alter_isr("a", 1, [1, 2], 0, 0)
    await s.alter_isr("a", 1, [1], 0, 1)
    await s.alter_isr("a", 1, [1, 3], 0, 2)
    await s.alter_isr("a", 1, [1, 3, 2], 0, 3)
    await s.kill(1)
    await s.kill(2)


@script()
async def isr_changes_in_every_version(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    for version in (0, 1, 2, 3):
        isr = [1, 2] if version % 2 == 0 else [1, 2, 3]
        await s.alter_isr("a", 1, isr, 0, version, version=version)
    await s.kill(3)
    for version in (0, 1, 2, 3):
        await s.alter_isr("a", 1, [1, 3], 1, 5, version=version)


@script()
async def what_isr_changes_are_refused_for(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.alter_isr("a", 1, [1, 2], 0, 0)
    await s.alter_isr("a", 1, [1, 2], 0, 0)  # again, as after a lost answer
    await s.alter_isr("a", 1, [1, 2], 0, 1)
    await s.alter_isr("a", 1, [2, 1], 0, 0)
    await s.alter_isr("a", 1, [1], 0, 9)
    await s.alter_isr("a", 1, [1], 9, 1)
    await s.alter_isr("a", 1, [1], -1, 1)
    await s.alter_isr("a", 1, [1], 0, 1, stale_broker=True)
    await s.alter_isr("a", 9, [1], 0, 1)
    await s.alter_isr("a", 1, [1], 0, 1, partition=7)
    await s.alter_isr("unknown", 1, [1], 0, 1)
    await s.alter_isr("unknown", 1, [1], 0, 1, version=1)
    await s.alter_isr("a", 1, [1, 2], 0, 1, recovery=1)
    await s.alter_isr("a", 1, [1], 0, 1, recovery=1)
    await s.kill(3)
    await s.alter_isr("a", 1, [1, 2, 3], 0, 1)
    await s.usurp(2)
    await s.alter_isr("a", 1, [1], 0, 1)


@script()
async def an_isr_change_that_zookeeper_refuses(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.write_state("a", 1, [1, 2, 3], 0)
    await s.alter_isr("a", 1, [1, 2], 0, 0)
    await s.kill(3)


@script()
async def leaders_that_write_their_isr_themselves(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[2, 3, 1]])
    await s.write_state("a", 1, [1, 2], 0)
    await s.notify_isr("a")
    await s.write_state("b", 2, [2], 0)
    await s.notify_isr("a", "b", "unknown")
    await s.kill(1)


# ---- unclean elections


@script(1, 2)
async def nobody_in_sync_is_left(s: Stage) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.kill(2)
    await s.kill(1)
    await s.start(2)
    await s.start(1)


@script(1, 2)
async def unclean_leader_that_recovers(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]], {"unclean.leader.election.enable": "true"})
    await s.start(3)
    await s.alter_isr("a", 1, [1], 0, 0)
    await s.kill(1)
    await s.alter_isr("a", 2, [2, 3], 1, 2, recovery=1)
    await s.alter_isr("a", 2, [2], 1, 2)
    await s.alter_isr("a", 2, [2], 1, 2, recovery=1)
    await s.alter_isr("a", 2, [2, 3], 1, 3)


@script(1, 2)
async def unclean_leader_that_dies_before_it_recovered(s: Stage) -> None:
    await s.create_topic("a", [[1, 2]], {"unclean.leader.election.enable": "true"})
    await s.alter_isr("a", 1, [1], 0, 0)
    await s.kill(1)
    await s.kill(2)
    await s.start(2)
    await s.start(1)


@script(1, 2)
async def unclean_allowed_when_it_is_too_late(s: Stage) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.alter_isr("a", 1, [1], 0, 0)
    await s.kill(1)
    await s.set_config("a", {"unclean.leader.election.enable": "true"})
    await s.notify_config("a")


# ---- log directories


@script()
async def a_directory_of_the_leader_fails(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 1]])
    s.brokers[1].errors["LeaderAndIsr"] = STORAGE_ERROR
    await s.log_dir_event(1)
    await s.kill(1)
    await s.start(1)


@script()
async def a_directory_of_a_follower_fails_at_creation(s: Stage) -> None:
    s.brokers[3].errors["LeaderAndIsr"] = STORAGE_ERROR
    await s.create_topic("a", [[1, 2, 3]])
    await s.alter_isr("a", 1, [1, 2, 3], 1, 1)
    s.brokers[3].errors.clear()
    await s.bounce(3)
    await s.alter_isr("a", 1, [1, 2, 3], 1, 1)


@script(1, 2)
async def a_directory_of_the_only_replica_fails(s: Stage) -> None:
    s.brokers[1].errors["LeaderAndIsr"] = STORAGE_ERROR
    await s.create_topic("a", [[1]])
    await s.create_topic("b", [[2, 1]])


# ---- the office


@script()
async def the_office_is_taken_again(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 3]])
    await s.delete_controller()
    await s.delete_controller()


@script()
async def the_leader_dies_while_nobody_looks(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.usurp(2)
    await s.kill(1)
    await s.delete_controller()


@script(1, 2)
async def an_offline_partition_at_every_failover(s: Stage) -> None:
    await s.create_topic("a", [[1]])
    await s.kill(1)
    await s.delete_controller()
    await s.delete_controller()
    await s.start(1)


@script()
async def topics_and_brokers_appear_while_nobody_looks(s: Stage) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.usurp(3)
    await s.create_topic("b", [[2, 4]])
    await s.create_topic("c", [[5]])
    await s.grow_topic("a", [[1, 2], [4, 3]])
    await s.notify_isr("a")
    await s.log_dir_event(2)
    await s.start(4)
    await s.delete_controller()


@script(1, 2, cold=True)
async def a_controller_finds_everything_there(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[3]])
    await s.start_controller()
    await s.kill(1)


@script()
async def a_shutdown_is_forgotten_at_a_failover(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.controlled_shutdown(3)
    await s.delete_controller()
    await s.alter_isr("a", 1, [1, 2, 3], 1, 1)


@script()
async def a_newer_controller_has_written(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[1, 2, 3]])
    await s.write_state("a", 1, [1, 2, 3], 0, controller_epoch=9)
    await s.kill(1)


# ---- channels


@script()
async def an_answer_is_lost(s: Stage) -> None:
    s.brokers[2].break_once("LeaderAndIsr")
    await s.create_topic("a", [[1, 2, 3]])
    s.brokers[3].break_once("UpdateMetadata")
    await s.kill(1)


@script()
async def a_broker_answers_late(s: Stage) -> None:
    s.brokers[3].hold("LeaderAndIsr")
    await s.create_topic("a", [[1, 2, 3]])
    await s.kill(1)
    await s.kill(2)
    await s.release(3, "LeaderAndIsr")


@script()
async def a_broker_that_never_answers_dies(s: Stage) -> None:
    s.brokers[3].hold("UpdateMetadata")
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[3, 2]])
    await s.kill(3)
    await s.start(3)


# ---- what nobody should do, and somebody does


@script()
async def an_isr_change_to_nobody(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.alter_isr("a", 1, [], 0, 0)


@script()
async def an_isr_change_that_names_a_broker_twice(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.alter_isr("a", 1, [1, 1], 0, 0)
    await s.kill(1)


@script(1, 2, 3, 4)
async def isr_changes_beyond_the_assignment(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.alter_isr("a", 1, [1, 4], 0, 0)


@script()
async def isr_changes_by_a_broker_that_does_not_lead(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.alter_isr("a", 2, [1, 2], 0, 0)


@script()
async def an_isr_change_with_an_unknown_recovery_state(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.alter_isr("a", 1, [1], 0, 0, recovery=7)


@script()
async def notifications_that_nobody_can_read(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.notify("/isr_change_notification/isr_change_", "no json")
    await s.notify("/isr_change_notification/isr_change_", '{"version":1}')
    await s.notify("/log_dir_event_notification/log_dir_event_", "no json")
    await s.notify("/log_dir_event_notification/log_dir_event_", '{"version":1,"broker":9,"event":1}')
    await s.kill(1)


@script()
async def a_state_that_nobody_can_read(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[1, 2, 3]])
    await s.write("/brokers/topics/a/partitions/0/state", "no json")
    await s.kill(1)
    await s.kill(2)


@script()
async def a_state_that_is_gone(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[1, 2, 3]])
    await s.write("/brokers/topics/a/partitions/0/state", None)
    await s.kill(1)


@script()
async def a_state_that_is_there_before_its_topic(s: Stage) -> None:
    state = '{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":5,"isr":[2,3]}'
    await s.write("/brokers/topics/b/partitions/0/state", state)
    await s.create_topic("a", [[1, 2, 3]])


@script()
async def a_topic_is_removed_by_hand(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.create_topic("b", [[1, 2, 3]])
    await s.write("/brokers/topics/a", None)
    await s.kill(1)


@script()
async def nobody_can_read_who_is_controller(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.write("/controller", "no json")
    await s.kill(1)
    await s.delete_controller()


@script()
async def the_controller_epoch_is_moved(s: Stage) -> None:
    """Its own fence stops the controller: it resigns, and is elected again with a higher epoch."""
    await s.create_topic("a", [[1, 2, 3]])
    await s.write("/controller_epoch", "5")
    await s.kill(1)


@script(1, 2)
async def registrations_of_older_brokers(s: Stage) -> None:
    await s.create_topic("a", [[1, 2]])
    await s.start(3)
    await s.older_registration(3, 4)
    await s.older_registration(3, 3)
    await s.older_registration(3, 2)


# ---- several things together


@script(1, 2, 3, 4)
async def a_leader_shuts_down_while_a_follower_is_dead(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3], [1, 4], [4, 1], [1]])
    await s.kill(4)
    await s.controlled_shutdown(1)
    await s.start(4)
    await s.kill(1)
    await s.alter_isr("a", 2, [2, 3], 1, 1)
    await s.start(1)


@script()
async def the_broker_that_shut_down_returns_at_once(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]])
    await s.controlled_shutdown(1)
    await s.bounce(1)
    await s.alter_isr("a", 2, [2, 3, 1], 1, 1)
    await s.controlled_shutdown(2)


@script()
async def a_failover_in_the_middle_of_a_shutdown(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 1]])
    await s.controlled_shutdown(1)
    await s.usurp(3)
    await s.kill(1)
    await s.start(1)
    await s.delete_controller()


@script()
async def a_failed_directory_is_forgotten_at_a_failover(s: Stage) -> None:
    s.brokers[3].errors["LeaderAndIsr"] = STORAGE_ERROR
    await s.create_topic("a", [[1, 2, 3], [3, 1]])
    s.brokers[3].errors.clear()
    await s.delete_controller()
    await s.controlled_shutdown(1)


@script()
async def a_leader_bounces_under_unclean_elections(s: Stage) -> None:
    await s.create_topic("a", [[1, 2]], {"unclean.leader.election.enable": "true"})
    await s.alter_isr("a", 1, [1], 0, 0)
    await s.bounce(1)
    await s.bounce(2)
    await s.delete_controller()


@script()
async def all_die_under_unclean_elections(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3]], {"unclean.leader.election.enable": "true"})
    for broker in (1, 2, 3):
        await s.kill(broker)
    await s.delete_controller()
    await s.start(1)
    await s.delete_controller()


@script()
async def a_topic_says_no_where_the_default_says_no(s: Stage) -> None:
    await s.create_topic("a", [[1, 2]], {"unclean.leader.election.enable": "false"})
    await s.alter_isr("a", 1, [1], 0, 0)
    await s.kill(1)
    await s.delete_controller()


@script()
async def many_partitions_in_a_failover(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1], [2], [3], [1, 2], [2, 1]])
    await s.usurp(9)
    await s.kill(2)
    await s.kill(1)
    await s.start(2)
    await s.delete_controller()
    await s.start(1)


# ---- older protocol versions


async def _a_small_life(s: Stage) -> None:
    await s.create_topic("a", [[1, 2, 3], [2, 1]])
    await s.controlled_shutdown(1)
    await s.controlled_shutdown(3)
    await s.kill(1)
    await s.start(1)
    await s.bounce(2)


@script(protocol="2.8")
async def a_small_life_in_2_8(s: Stage) -> None:
    await _a_small_life(s)


@script(protocol="2.4")
async def a_small_life_in_2_4(s: Stage) -> None:
    await _a_small_life(s)


@script(protocol="2.2")
async def a_small_life_in_2_2(s: Stage) -> None:
    await _a_small_life(s)


@script(protocol="1.0")
async def a_small_life_in_1_0(s: Stage) -> None:
    await _a_small_life(s)


@script(protocol="0.10.2")
async def a_small_life_in_0_10_2(s: Stage) -> None:
    await _a_small_life(s)
