"""What handlers write into the journal: each write, decision and refusal, with its partitions and reasons."""

from collections.abc import Sequence

import pytest
from tests.support.controller_room import Room, alter_partition
from tests.unit.controller.reassigning import ask, ids, join, room_with

from klamm.controller.events import BrokerChange, ReplicaLeaderElection, TopicDeletion
from klamm.controller.handlers.brokers import on_broker_change
from klamm.controller.handlers.elections import on_requested_election
from klamm.controller.handlers.isr import on_alter_partition
from klamm.controller.handlers.topic_deletion import on_topic_deletion
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, parse_topic_partition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.telemetry.journal_reader import Entry
from klamm.zk import znodes
from klamm.zk.operations import Create, Op, Set
from klamm.zk.process_ends import process_end_path


def last(room: Room, kind: str, **facts: object) -> Entry:
    """The last journal entry of this kind with these facts."""
    return [e for e in room.entries(kind) if facts.items() <= e.facts.items()][-1]


async def test_the_journal_line_of_a_started_reassignment_has_the_replicas_before_and_after() -> None:
    room = await room_with(1)

    await ask(room, a_0=[2])

    begun, waiting = room.entries("reassignment")
    assert (begun.facts["step"], begun.facts["replicas_from"], begun.facts["replicas"]) == ("begun", [1], [2, 1])
    assert (begun.facts["adding"], begun.facts["removing"]) == ([2], [1])
    assert (waiting.facts["step"], waiting.facts["replicas_from"]) == ("waiting", [2, 1])
    assert (waiting.facts["awaited"], waiting.facts["next"]) == ([2], "complete once these are in the ISR")

    await join(room, 1, 2)

    complete = room.entries("reassignment")[-1]
    assert (complete.facts["step"], complete.facts["replicas_from"]) == ("complete", [2, 1])
    assert complete.facts["replicas"] == [2]
    assert "awaited" not in complete.facts


async def test_each_write_of_partition_states_is_journalled_with_its_partitions() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3), (2, 3, 1)], "b": [(1, 2)]})
    room.kill(1)

    await room.handle(on_broker_change, BrokerChange())

    states = [e.facts["partitions"] for e in room.entries("write") if e.facts["what"] == "states"]
    assert {"a": [0], "b": [0]} in states  # the elections
    assert {"a": [1]} in states  # the removal of broker 1 from the ISR that it did not lead


async def test_an_isr_proposed_by_a_leader_is_journalled_as_a_write() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)]})

    await room.handle(on_alter_partition, alter_partition(room, 1, 0, 0, [1, 2]))

    assert last(room, "write", what="states").facts["partitions"] == {"a": [0]}


async def test_a_partition_state_write_refused_for_its_version_is_journalled_once() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)], "b": [(1, 2, 3)]})
    changed = LeaderAndIsr(BrokerId(1), 0, ids(1, 3), room.term.context.epoch)

    def change(ops: Sequence[Op]) -> None:
        if any(op.path == znodes.state_path(parse_topic_partition("a-0")) for op in ops):
            room.ensemble.before_multi = lambda ops: None
            room.write_state("a-0", changed)

    room.ensemble.before_multi = change
    room.kill(1)
    await room.handle(on_broker_change, BrokerChange())

    conflicts = [e.facts for e in room.entries("write") if "refused" in e.facts]
    assert [(c["what"], c["partitions"], c["refused"]) for c in conflicts] == [
        ("states", {"a": [0]}, "the znode changed after it was read: the decision is repeated")
    ]


async def test_the_journal_counts_elections_not_needed_and_names_partitions_refused_otherwise() -> None:
    room = await Room.open(topics={"a": [(1, 2), (1, 2)]})
    wanted = [parse_topic_partition(n) for n in ("a-0", "a-1", "gone-0")]

    await room.handle(on_requested_election, ReplicaLeaderElection(wanted, False))

    needless, unknown = (e.facts for e in room.entries("refused"))
    assert (needless["why"], needless["partition_count"]) == (ErrorCode.ELECTION_NOT_NEEDED.name, 2)
    assert "partitions" not in needless
    assert (unknown["error"], unknown["partitions"]) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name, {"gone": [0]})


async def test_deletion_of_a_topic_that_the_controller_has_not_read_yet_is_queued() -> None:
    room = await Room.open()
    await room.write_topic("a", [(1, 2)])
    room.ensemble.apply([Create(znodes.delete_topic_path("a"))])

    await room.handle(on_topic_deletion, TopicDeletion())

    assert room.entries("refused") == []
    assert last(room, "found", to_be_deleted=["a"])


async def test_deletion_of_an_unknown_topic_is_refused_and_its_request_znode_removed() -> None:
    room = await Room.open()
    room.ensemble.apply([Create(znodes.delete_topic_path("a"))])

    await room.handle(on_topic_deletion, TopicDeletion())

    [refused] = room.entries("refused")
    assert (refused.facts["what"], refused.facts["topics"]) == ("topic deletion", ["a"])
    assert refused.facts["why"] == "the topic does not exist: the request is removed"
    assert znodes.delete_topic_path("a") not in room.ensemble.nodes


async def test_deletion_of_an_unreadable_topic_is_refused_and_its_request_znode_kept() -> None:
    room = await Room.open()
    await room.write_topic("a", [(1, 2)])
    room.ensemble.apply([Set(znodes.topic_path("a"), b"rubbish"), Create(znodes.delete_topic_path("a"))])

    await room.handle(on_topic_deletion, TopicDeletion())

    refused = last(room, "refused", what="topic deletion")
    assert refused.facts["topics"] == ["a"]
    assert "cannot be read" in refused.facts["why"]
    assert znodes.delete_topic_path("a") in room.ensemble.nodes


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
async def test_a_new_controller_journals_only_ends_of_processes_that_none_has_handled(leads: bool) -> None:
    room = await Room.open(topics={"a": [(3, 2, 1) if leads else (2, 3, 1)]})
    room.ensemble.apply([Create(path) for path in ("/klamm", znodes.PROCESS_ENDS)])
    room.kill(3)
    room.ensemble.apply([Create(process_end_path(BrokerId(3)), b'{"version":1,"signal":9}')])

    await room.become_controller()
    assert last(room, "found", dead=[3]).facts["ended"].keys() == {"3"}
    assert "3" not in room.now("a-0").split(" / ")[1]
    before = len(room.entries("found"))
    room.kill(2)
    await room.become_controller()

    assert [e.facts for e in room.entries("found")[before:] if "ended" in e.facts] == []
