"""Which replicas are throttled during a reassignment, and which configs are removed after it."""

from klamm.config.dynamic_keys import (
    FOLLOWER_THROTTLED_RATE,
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_RATE,
    LEADER_THROTTLED_REPLICAS,
)
from klamm.config.entities import BROKER, TOPIC, Config, Entity
from klamm.config.topic_config import ConfigSource
from klamm.model.assignment import ReplicaAssignment
from klamm.model.cluster import Partition
from klamm.model.ids import BrokerId, TopicPartition
from klamm.plan.progress import MoveState, is_complete, is_over, progress_of, progress_text
from klamm.plan.throttles import plan_copies, plan_removal, plan_throttle


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


P0, P1, P2 = (TopicPartition("t", n) for n in range(3))


def config(name: str, value: str, source: ConfigSource) -> Config:
    return Config(name, value, source, False, False, (), None)


def test_a_reassignment_throttle_covers_leaders_and_new_followers_of_reassigned_partitions() -> None:
    copies = plan_copies({P0: ids(2, 3)}, {P0: ids(1, 2)}, {})
    rates: dict[str, str | None] = {LEADER_THROTTLED_RATE: "500", FOLLOWER_THROTTLED_RATE: "500"}

    assert plan_throttle(copies, 500, ids(1, 2, 3)) == {
        Entity(TOPIC, "t"): {LEADER_THROTTLED_REPLICAS: "0:1,0:2", FOLLOWER_THROTTLED_REPLICAS: "0:3"},
        Entity(BROKER, "1"): rates,
        Entity(BROKER, "2"): rates,
        Entity(BROKER, "3"): rates,
    }


def test_a_reassignment_throttle_sets_no_rate_on_a_dead_broker() -> None:
    changes = plan_throttle(plan_copies({P0: ids(1, 3)}, {P0: ids(1, 9)}, {}), 500, ids(1, 3))

    assert [entity.name for entity in changes if entity.type == BROKER] == ["1", "3"]
    assert changes[Entity(TOPIC, "t")] == {LEADER_THROTTLED_REPLICAS: "0:1,0:9", FOLLOWER_THROTTLED_REPLICAS: "0:3"}


def test_a_reassignment_throttle_also_covers_reassignments_already_in_progress() -> None:
    moving = {P1: ReplicaAssignment(replicas=ids(4, 1), adding=ids(4), removing=ids(1))}

    changes = plan_throttle(plan_copies({P0: ids(2)}, {P0: ids(2)}, moving), 500, ids(1, 2, 4))

    assert changes[Entity(TOPIC, "t")] == {LEADER_THROTTLED_REPLICAS: "0:2,1:1", FOLLOWER_THROTTLED_REPLICAS: "1:4"}


def test_the_throttle_of_a_replaced_reassignment_covers_the_existing_replicas_as_sources() -> None:
    moving = {P0: ReplicaAssignment(replicas=ids(4, 1), adding=ids(4), removing=ids(1))}

    assert plan_copies({P0: ids(5)}, {P0: ids(4, 1)}, moving)[P0] == (ids(1), ids(5))


def test_removing_a_reassignment_throttle_deletes_only_configs_set_on_the_entity_itself() -> None:
    topic, broker = Entity(TOPIC, "t"), Entity(BROKER, "1")
    found = {
        topic: {
            LEADER_THROTTLED_REPLICAS: config(LEADER_THROTTLED_REPLICAS, "0:1", ConfigSource.TOPIC),
            FOLLOWER_THROTTLED_REPLICAS: config(FOLLOWER_THROTTLED_REPLICAS, "", ConfigSource.DEFAULT),
        },
        broker: {LEADER_THROTTLED_RATE: config(LEADER_THROTTLED_RATE, "5", ConfigSource.DYNAMIC_DEFAULT)},
    }

    assert plan_removal(found) == {topic: {LEADER_THROTTLED_REPLICAS: None}}


def test_reassignment_progress_distinguishes_complete_moving_and_other_partitions() -> None:
    led = BrokerId(1)
    found = {P0: Partition(led, ids(1, 2), ids(1, 2)), P1: Partition(led, ids(1, 3), ids(1))}
    moves = {P1: ReplicaAssignment(ids(1, 3), ids(3), ())}
    wanted = {P0: ids(1, 2), P1: ids(1, 3), P2: ids(1)}

    done, moving, unknown = progress_of(wanted, found, moves, ids(1, 2, 3))

    assert (done.state, moving.state, unknown.state) == (MoveState.COMPLETE, MoveState.MOVING, MoveState.UNKNOWN)
    assert progress_text(moving) == "in progress: broker 3 not in sync yet"
    assert not is_over([done, moving])
    assert is_complete([done])
    [elsewhere] = progress_of({P0: ids(2, 1)}, found, {}, ids(1, 2))
    assert elsewhere.state is MoveState.ELSEWHERE
    assert is_over([elsewhere])
    assert not is_complete([elsewhere])


def test_a_reassignment_to_a_dead_broker_is_reported_as_stuck() -> None:
    found = {P0: Partition(BrokerId(1), ids(1, 3, 4), ids(1))}
    moves = {P0: ReplicaAssignment(ids(1, 3, 4), ids(3, 4), ())}

    [stuck] = progress_of({P0: ids(1, 3, 4)}, found, moves, ids(1, 3))

    assert (stuck.state, stuck.dead) == (MoveState.MOVING, ids(4))
    assert progress_text(stuck) == "stuck: broker 4 not alive. Start it, or run klamm reassign cancel."
