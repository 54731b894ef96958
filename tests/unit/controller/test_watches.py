"""Which event follows a fired watch or a refused write."""

import pytest

from klamm.controller import events
from klamm.controller.events import Event
from klamm.controller.watches import event_for, retry_events_for
from klamm.model.ids import TopicPartition, parse_topic_partition
from klamm.zk.watches import EventType, WatchEvent

CREATED, DELETED, CHANGED, CHILDREN = (
    EventType.CREATED,
    EventType.DELETED,
    EventType.DATA_CHANGED,
    EventType.CHILDREN_CHANGED,
)
CASES: list[tuple[str, EventType, type[Event] | None]] = [
    ("/brokers/ids", CHILDREN, events.BrokerChange),
    ("/brokers/topics", CHILDREN, events.TopicChange),
    ("/admin/delete_topics", CHILDREN, events.TopicDeletion),
    ("/isr_change_notification", CHILDREN, events.IsrChangeNotification),
    ("/log_dir_event_notification", CHILDREN, events.LogDirEventNotification),
    ("/config/changes", CHILDREN, None),
    ("/controller", DELETED, events.Reelect),
    ("/controller", CREATED, events.ControllerChange),
    ("/controller", CHANGED, events.ControllerChange),
    ("/admin/reassign_partitions", CREATED, events.ZkPartitionReassignment),
    ("/admin/preferred_replica_election", CREATED, events.ReplicaLeaderElection),
    ("/brokers/ids/7", CHANGED, events.BrokerModifications),
    ("/brokers/ids/7", DELETED, None),
    ("/brokers/ids/seven", CHANGED, None),
    ("/brokers/topics/a", CHANGED, events.PartitionModifications),
    ("/brokers/topics/a", DELETED, events.PartitionModifications),
    ("/brokers/topics/a", CREATED, None),
    ("/brokers/topics/a/partitions/3/state", CHANGED, events.PartitionReassignmentIsrChange),
    ("/brokers/topics/a/partitions/3/state", DELETED, None),
    ("/config/topics/a", CHANGED, None),
]


@pytest.mark.parametrize(("path", "kind", "expected"), CASES)
async def test_a_fired_zookeeper_watch_becomes_the_controller_event_of_its_path(
    path: str, kind: EventType, expected: type[Event] | None
) -> None:
    event = event_for(WatchEvent(kind, path))

    assert (None if event is None else type(event)) is expected


async def test_controller_events_carry_the_topic_broker_or_partition_named_in_the_watched_path() -> None:
    broker = event_for(WatchEvent(CHANGED, "/brokers/ids/7"))
    topic = event_for(WatchEvent(CHANGED, "/brokers/topics/a"))
    state = event_for(WatchEvent(CHANGED, "/brokers/topics/a/partitions/3/state"))
    election = event_for(WatchEvent(CREATED, "/admin/preferred_replica_election"))

    assert isinstance(broker, events.BrokerModifications)
    assert broker.broker == 7
    assert isinstance(topic, events.PartitionModifications)
    assert topic.topic == "a"
    assert isinstance(state, events.PartitionReassignmentIsrChange)
    assert state.partition == TopicPartition("a", 3)
    assert isinstance(election, events.ReplicaLeaderElection)
    assert (election.partitions, election.unclean) == (None, False)


async def test_refused_writes_are_retried_by_the_event_of_their_path_or_by_resuming_all_work() -> None:
    paths = [
        "/admin/delete_topics/a",
        "/admin/delete_topics/b",
        "/isr_change_notification/isr_change_1",
        "/log_dir_event_notification/log_dir_event_1",
        "/admin/reassign_partitions",
        "/admin/preferred_replica_election",
        "/brokers/topics/a",
    ]

    found = retry_events_for(paths)

    assert {type(event) for event in found.values()} == {
        events.TopicDeletion,
        events.IsrChangeNotification,
        events.LogDirEventNotification,
        events.ZkPartitionReassignment,
        events.ReplicaLeaderElection,
        events.ResumeAfterFailure,
    }
    [election] = [e for e in found.values() if isinstance(e, events.ReplicaLeaderElection)]
    assert (election.partitions, election.unclean) == (None, False)
    assert all(key == event.retry_key for key, event in found.items())


async def test_elections_of_different_partitions_or_kinds_have_separate_retry_backoffs() -> None:
    a, b = parse_topic_partition("a-0"), parse_topic_partition("b-0")
    wanted = [([a], False), ([b], False), ([a], True), (None, False)]

    keys = {events.ReplicaLeaderElection(partitions, unclean).retry_key for partitions, unclean in wanted}

    assert len(keys) == len(wanted)
    assert events.ReplicaLeaderElection([a], False).retry_key in keys
