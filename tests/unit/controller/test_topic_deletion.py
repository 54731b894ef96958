"""Topic deletion: its steps, requests that are refused, and brokers that fail to delete."""

from collections.abc import Sequence

from tests.unit.controller.deleting import NO_WAITING, Deleting

from klamm.controller.control_requests import StopReplicaItem, deletion_errors
from klamm.controller.events import BrokerChange, ResumeAfterFailure
from klamm.controller.handlers.brokers import on_broker_change
from klamm.controller.handlers.failover import on_resume_after_failure
from klamm.controller.settings import ControllerSettings
from klamm.controller.states import PartitionState
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.wire.messages import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from klamm.zk import znodes
from klamm.zk.admin_znodes import encode_config
from klamm.zk.operations import Create, Delete, Op


async def test_topic_deletion_removes_metadata_first_then_replicas_then_the_topics_znodes() -> None:
    cluster = await Deleting.open({"a": [(1, 2), (2, 3)], "b": [(1, 2)]})

    requests = await cluster.delete("a")

    assert requests == [
        "UMR a-0=-2/[1,2]/0/0 a-1=-2/[2,3]/0/0 -> 1,2,3",
        "SR a-0@-2+delete -> 1",
        "SR a-0@-2+delete a-1@-2+delete -> 2",
        "SR a-1@-2+delete -> 3",
    ]
    states = [cluster.room.partition(name).state for name in ("a-0", "a-1", "b-0")]
    assert states == [PartitionState.NON_EXISTENT, PartitionState.NON_EXISTENT, PartitionState.ONLINE]
    await cluster.answer(1)
    await cluster.answer(2)
    assert znodes.topic_path("a") in cluster.znodes_of("a")
    assert await cluster.answer(3) == []
    assert cluster.znodes_of("a") == []
    assert "a" not in cluster.room.term.context.topics
    assert cluster.room.term.context.topics_to_be_deleted == {}
    assert cluster.room.now("b-0") == "1 / [1,2] / 0 / 0"


async def test_topic_deletion_removes_the_delete_topics_znode_last() -> None:
    cluster = await Deleting.open({"a": [(1,)]})
    await cluster.delete("a")
    cluster.room.ensemble.multis.clear()

    await cluster.answer(1)

    gone = [op.path for multi in cluster.room.ensemble.multis for op in multi if isinstance(op, Delete)]
    assert gone[-1] == "/admin/delete_topics/a"
    assert gone.index("/brokers/topics/a") > gone.index("/brokers/topics/a/partitions/0/state")
    assert set(gone[-3:-1]) == {"/brokers/topics/a", "/config/topics/a"}


async def test_a_topic_stays_until_its_config_is_deleted() -> None:
    """Otherwise the next topic of its name would have the configs of the deleted one."""
    cluster = await Deleting.open({"a": [(1,)], "b": [(1,)]})
    config = znodes.topic_config_path("a")
    cluster.room.ensemble.apply([Create(config, encode_config({"retention.ms": "1000"}))])
    await cluster.delete("a", "b")
    cluster.room.ensemble.unwritable.add(config)

    await cluster.answer(1)

    assert cluster.why("a") == "/config/topics/a cannot be deleted: NO_AUTH; this is retried"
    assert {config, znodes.topic_path("a"), znodes.delete_topic_path("a")} <= set(cluster.znodes_of("a"))
    assert cluster.znodes_of("b") == []

    cluster.room.ensemble.unwritable.clear()
    await cluster.do(on_resume_after_failure, ResumeAfterFailure())
    assert cluster.znodes_of("a") == []


async def test_a_topic_whose_znodes_cannot_be_removed_does_not_block_other_topic_deletions() -> None:
    cluster = await Deleting.open({"a": [(1,)], "b": [(1,)], "c": [(1,)]})
    await cluster.delete("a", "b")

    def put_something_below(ops: Sequence[Op]) -> None:
        if any(op.path == znodes.topic_path("a") for op in ops):
            cluster.room.ensemble.apply([Create("/brokers/topics/a/mine")])

    cluster.room.ensemble.before_multi = put_something_below
    await cluster.answer(1)

    assert cluster.znodes_of("b") == []
    assert znodes.delete_topic_path("a") in cluster.znodes_of("a")
    assert cluster.why("a") == "/brokers/topics/a cannot be deleted: NOT_EMPTY; this is retried"

    cluster.room.ensemble.before_multi = lambda ops: None
    await cluster.room.become_controller()
    cluster.stops = [(b, i) for b, i in cluster.room.channels.items if isinstance(i, StopReplicaItem)]
    await cluster.answer(1)
    assert cluster.znodes_of("a") == []


async def test_a_topic_without_partitions_is_deleted_at_once() -> None:
    cluster = await Deleting.open({"a": []})

    await cluster.delete("a")

    assert cluster.znodes_of("a") == []


async def test_deletion_requests_for_topics_that_do_not_exist_are_removed() -> None:
    cluster = await Deleting.open({"a": [(1,)]})

    await cluster.delete("nobody")

    assert cluster.znodes_of("nobody") == []
    assert cluster.room.entries("refused")[-1].facts["topics"] == ["nobody"]


async def test_a_topic_is_deleted_even_if_its_creation_event_follows_its_deletion_request() -> None:
    cluster = await Deleting.open({})
    await cluster.room.write_topic("a", [(1, 2)])

    requests = await cluster.delete("a")

    assert "SR a-0@-2+delete -> 1,2" in requests


async def test_disabled_topic_deletion_removes_deletion_requests_and_keeps_the_topics() -> None:
    settings = ControllerSettings(BrokerId(1), delete_topic_enable=False)
    cluster = await Deleting.open({"a": [(1, 2)]}, settings=settings)

    assert await cluster.delete("a") == []

    assert znodes.delete_topic_path("a") not in cluster.room.ensemble.nodes
    assert cluster.room.now("a-0") == "1 / [1,2] / 0 / 0"
    cluster.room.ensemble.apply([Create(znodes.delete_topic_path("a"))])
    await cluster.room.become_controller()
    assert znodes.delete_topic_path("a") not in cluster.room.ensemble.nodes


async def test_disabled_topic_deletion_is_journalled_only_if_a_deletion_was_requested() -> None:
    settings = ControllerSettings(BrokerId(1), delete_topic_enable=False)
    cluster = await Deleting.open({"a": [(1, 2)]}, settings=settings)
    assert cluster.room.entries("refused") == []

    await cluster.delete("a")

    assert [e.facts["topics"] for e in cluster.room.entries("refused")] == [["a"]]


# ---- the journal, and answers


async def test_the_journal_records_each_step_of_a_topic_deletion_and_reasons_for_waiting() -> None:
    cluster = await Deleting.open({"a": [(1, 2)]}, settings=NO_WAITING)
    await cluster.kill(2)
    await cluster.delete("a")
    await cluster.answer(1)

    steps = [(e.facts["step"], e.facts["partitions"]) for e in cluster.room.entries("deletion")]
    assert steps == [("begins", {"a": [0]}), ("completed", {"a": [0]})]
    assert cluster.room.entries("deletion")[-1].facts["replicas_pending_on"] == [2]


async def test_a_stop_replica_response_with_an_error_or_missing_partition_counts_as_not_deleted() -> None:
    cluster = await Deleting.open({"a": [(1,), (1,)]})
    await cluster.delete("a")
    [(_, item)] = cluster.stops
    request = StopReplicaRequest(topic_states=[StopReplicaTopicState("a", [])])
    zero, one = item.stops

    stale = StopReplicaResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    assert set(deletion_errors(item, request, stale).values()) == {ErrorCode.STALE_BROKER_EPOCH}
    half = StopReplicaResponse(partition_errors=[StopReplicaPartitionError("a", 1, ErrorCode.NONE)])
    assert deletion_errors(item, request, half) == {zero: ErrorCode.UNKNOWN_SERVER_ERROR, one: ErrorCode.NONE}


async def test_a_replica_deletion_that_was_lost_with_the_brokers_channel_is_requested_again() -> None:
    """A failed BrokerChange is handled again with new channels, which drops what the old ones had not sent."""
    cluster = await Deleting.open({"a": [(1, 2)]})
    await cluster.delete("a")
    await cluster.answer(1)

    again = await cluster.answer(2, ErrorCode.NETWORK_EXCEPTION)
    assert "SR a-0@-2+delete -> 2" in again

    context = cluster.room.term.context
    context.brokers_in_transition[BrokerId(2)] = None
    assert await cluster.answer(2, ErrorCode.NETWORK_EXCEPTION) == []
    assert "NETWORK_EXCEPTION" in cluster.why("a")
    assert "SR a-0@-2+delete -> 2" in await cluster.do(on_broker_change, BrokerChange())
