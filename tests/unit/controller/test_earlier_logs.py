"""A broker may have the log of a deleted topic where a later topic of that name has a replica: whose log is deleted."""

import dataclasses
import uuid
from collections.abc import Sequence

import pytest
from tests.unit.controller.deleting import (
    NO_WAITING,
    Deleting,
    deleted_offline_then_created_again,
    leader_and_isr_answer,
)

from klamm.controller.decisions.elections import EARLIER_LOG
from klamm.controller.events import ApiPartitionReassignment, PartitionModifications, TopicChange
from klamm.controller.handlers import failover
from klamm.controller.handlers.reassignment_requests import on_api_reassignment
from klamm.controller.handlers.topics import on_partition_modifications, on_topic_change
from klamm.controller.settings import ControllerSettings, Ibp
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.zk import znodes
from klamm.zk.errors import MalformedReply
from klamm.zk.operations import Set

NEWEST, WITHOUT_IDS = (3, 9, 0), (2, 6, 0)
PROTOCOLS = {"requests with topic ids": NEWEST, "requests without topic ids": WITHOUT_IDS}


def at_protocol(ibp: Ibp) -> ControllerSettings:
    return dataclasses.replace(NO_WAITING, ibp=ibp)


async def begin_term(cluster: Deleting, ibp: Ibp) -> list[str]:
    """Let a controller with this protocol take over; returns the requests that it sent."""
    cluster.room.settings = at_protocol(ibp)
    await cluster.room.become_controller()
    return cluster.room.channels.take()


async def create(cluster: Deleting, replicas: Sequence[int], topic_id: int = 77) -> list[str]:
    """Create topic `a` with one partition; returns the requests sent."""
    assignment = {0: ReplicaAssignment(tuple(map(BrokerId, replicas)))}
    await cluster.room.store.create_topic("a", assignment, uuid.UUID(int=topic_id), {})
    return await cluster.do(on_topic_change, TopicChange())


async def deleted_offline() -> Deleting:
    """A cluster where `a` was deleted while broker 2 was dead."""
    cluster = await Deleting.open({"a": [(1, 2)]}, settings=NO_WAITING)
    await cluster.kill(2)
    await cluster.delete("a")
    await cluster.answer(1)
    return cluster


def position(requests: list[str], start: str, broker: int) -> int:
    """Where the first request to the broker is that begins so."""
    return next(
        n for n, r in enumerate(requests) if r.startswith(start) and str(broker) in r.split(" -> ")[1].split(",")
    )


# ---- outside of the ISR


@pytest.mark.parametrize("ibp", PROTOCOLS.values(), ids=PROTOCOLS)
async def test_an_earlier_log_outside_the_isr_is_deleted_before_its_broker_gets_the_later_topic(ibp: Ibp) -> None:
    """Without topic ids, or with a log that has none, the broker would take its log for that of the later topic."""
    cluster = await deleted_offline_then_created_again()
    await begin_term(cluster, ibp)

    requests = await cluster.start(2)

    assert position(requests, "SR a-0@-2+delete", 2) < position(requests, "LISR a-0=", 2)
    assert cluster.room.now("a-0") == "1 / [1] / 1 / 1"
    assert "LISR a-0=1/[1]/1/1 -> 1,2" in requests
    await cluster.answer(2)
    assert cluster.pending_deletions() == []


@pytest.mark.parametrize("ibp", PROTOCOLS.values(), ids=PROTOCOLS)
async def test_the_next_controller_fences_the_leader_before_it_deletes_an_earlier_log(ibp: Ibp) -> None:
    """The broker may have copied the later topic since, and its leader be about to add it to the ISR."""
    cluster = await deleted_offline_then_created_again()
    await cluster.start(2)

    requests = await begin_term(cluster, ibp)

    assert cluster.room.now("a-0") == "1 / [1] / 2 / 2"
    assert position(requests, "SR a-0@-2+delete", 2) < position(requests, "LISR a-0=1/[1]/2/2", 2)
    assert "LISR a-0=1/[1]/2/2 -> 1,2" in requests


async def test_a_failover_that_sends_topics_as_a_whole_sends_a_fenced_partition_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failover, "MAX_SENT_BY_PARTITION", 0)
    cluster = await deleted_offline_then_created_again()
    await cluster.start(2)

    requests = await begin_term(cluster, NEWEST)

    assert [r for r in requests if "LISR" in r] == ["LISR a-0=1/[1]/2/2 -> 1,2"]


async def test_an_isr_that_is_found_to_have_the_broker_when_the_leader_is_fenced_protects_its_log() -> None:
    cluster = await deleted_offline_then_created_again()
    await cluster.start(2)
    await begin_term(cluster, WITHOUT_IDS)
    await cluster.kill(2)
    isr = (BrokerId(1), BrokerId(2))
    cluster.room.write_state("a-0", cluster.room.stored("a-0")._replace(isr=isr))

    requests = await cluster.start(2)

    assert not any(r.startswith("SR") for r in requests)
    assert cluster.room.stored("a-0").isr == isr


@pytest.mark.parametrize("ibp", PROTOCOLS.values(), ids=PROTOCOLS)
async def test_no_log_is_deleted_while_the_state_of_the_later_topic_cannot_be_read(ibp: Ibp) -> None:
    cluster = await deleted_offline_then_created_again()
    cluster.room.ensemble.apply([Set(znodes.state_path(TopicPartition("a", 0)), b"{")])
    await cluster.room.register(2)

    requests = await begin_term(cluster, ibp)

    assert not any(r.startswith(("SR", "LISR")) for r in requests)
    assert len(cluster.pending_deletions()) == 1


async def test_a_broker_is_asked_while_the_later_topic_has_no_live_leader() -> None:
    """Its log could be the last one of the later topic."""
    cluster = await deleted_offline_then_created_again()
    await cluster.kill(1)

    assert not any(r.startswith("SR") for r in await cluster.start(2))

    assert await leader_and_isr_answer(cluster, 2, ErrorCode.INCONSISTENT_TOPIC_ID) == ["SR a-0@-2+delete -> 2"]


async def test_a_broker_without_an_earlier_log_gets_the_leader_elected_before_its_answer() -> None:
    cluster = await deleted_offline_then_created_again()
    await cluster.kill(1)
    await cluster.start(2)
    assert "LISR a-0=1/[1]/2/2 -> 1" in await cluster.start(1)

    requests = await leader_and_isr_answer(cluster, 2, ErrorCode.NONE)

    assert "LISR a-0=1/[1]/2/2 -> 2" in requests
    assert cluster.pending_deletions() == []


async def test_without_topic_ids_an_earlier_log_is_deleted_although_the_later_topic_has_no_live_leader() -> None:
    cluster = await deleted_offline_then_created_again()
    await begin_term(cluster, WITHOUT_IDS)
    await cluster.kill(1)

    assert "SR a-0@-2+delete -> 2" in await cluster.start(2)


# ---- in the ISR


async def begin_with_broker_2_in_the_isr(ibp: Ibp) -> tuple[Deleting, list[str]]:
    """A term of a controller that finds a record of a broker which is in the ISR of the later topic."""
    cluster = await deleted_offline_then_created_again()
    state = LeaderAndIsr(BrokerId(1), 0, (BrokerId(1), BrokerId(2)), 1, 1)
    cluster.room.write_state("a-0", state)
    await cluster.room.register(2)
    cluster.room.settings = dataclasses.replace(NO_WAITING, replaces_restarted_replicas=False)
    cluster.room.settings = dataclasses.replace(cluster.room.settings, ibp=ibp)
    await cluster.room.become_controller()
    return cluster, cluster.room.channels.take()


async def test_a_log_in_the_isr_is_deleted_only_after_its_old_topic_id_is_confirmed() -> None:
    cluster, requests = await begin_with_broker_2_in_the_isr(NEWEST)
    assert not any(r.startswith("SR") for r in requests)
    assert "LISR a-0=1/[1,2]/0/1 -> 1,2" in requests

    assert await leader_and_isr_answer(cluster, 2, ErrorCode.INCONSISTENT_TOPIC_ID) == ["SR a-0@-2+delete -> 2"]
    assert await leader_and_isr_answer(cluster, 2, ErrorCode.INCONSISTENT_TOPIC_ID) == []  # told once
    assert await cluster.answer(2) == ["LISR a-0=1/[1,2]/0/1+new -> 2", "UMR a-0=1/[1,2]/0/1 -> 1,2,3"]
    assert cluster.pending_deletions() == []


async def test_without_topic_ids_a_log_in_the_isr_is_kept_and_no_longer_pending_deletion() -> None:
    cluster, requests = await begin_with_broker_2_in_the_isr(WITHOUT_IDS)

    assert not any(r.startswith("SR") for r in requests)
    assert cluster.pending_deletions() == []
    assert "is in the ISR of a later topic" in str(cluster.room.entries("refused")[-1])


async def test_an_accepted_leader_and_isr_without_a_topic_id_clears_no_pending_deletion() -> None:
    cluster = await deleted_offline_then_created_again()
    await begin_term(cluster, WITHOUT_IDS)
    await cluster.start(2)

    await leader_and_isr_answer(cluster, 2, ErrorCode.NONE)

    assert len(cluster.pending_deletions()) == 1


# ---- elections


@pytest.mark.parametrize("ibp", PROTOCOLS.values(), ids=PROTOCOLS)
async def test_a_broker_with_an_earlier_log_leads_only_after_it_confirmed_the_deletion(ibp: Ibp) -> None:
    """The next controller would find it in the ISR, whether or not StopReplica had reached it."""
    cluster = await deleted_offline()
    await begin_term(cluster, ibp)
    await create(cluster, [2])

    requests = await cluster.start(2)
    assert "SR a-0@-2+delete -> 2" in requests
    assert not any(r.startswith("LISR") for r in requests)
    assert cluster.room.partition("a-0").leadership is None
    assert EARLIER_LOG in str(cluster.room.entries("refused")[-1])

    assert "LISR a-0=2/[2]/0/0+new -> 2" in await cluster.answer(2)
    assert cluster.pending_deletions() == []


@pytest.mark.parametrize("ibp", PROTOCOLS.values(), ids=PROTOCOLS)
async def test_a_live_broker_with_an_earlier_log_gets_a_new_topic_after_the_deletion(ibp: Ibp) -> None:
    cluster = await deleted_offline()
    await begin_term(cluster, ibp)
    assert "SR a-0@-2+delete -> 2" in await cluster.start(2)

    requests = await create(cluster, [2, 1])

    assert cluster.room.now("a-0") == "1 / [1] / 0 / 0"
    assert "LISR a-0=1/[1]/0/0+new -> 1" in requests
    assert not any(r.startswith("SR") for r in requests)
    assert "LISR a-0=1/[1]/0/0+new -> 2" in await cluster.answer(2)
    [first] = [e for e in cluster.room.entries("decision") if e.facts["decision"] == "initial"][-1:]
    assert first.facts["rejected"] == [[2, EARLIER_LOG]]


async def test_a_deletion_that_waits_to_be_sent_is_not_repeated_for_a_new_topic() -> None:
    cluster = await deleted_offline()
    await cluster.start(2)
    cluster.room.channels.unsent = {TopicPartition("a", 0)}

    assert not any(r.startswith("SR") for r in await create(cluster, [2, 1]))


async def test_a_new_topic_is_found_again_if_the_deletion_of_an_earlier_log_was_interrupted() -> None:
    """Else the broker would never get a replica: its log is in the way, and nobody would delete it."""
    cluster = await deleted_offline()
    await begin_term(cluster, NEWEST)
    await cluster.start(2)
    await cluster.answer(2, ErrorCode.KAFKA_STORAGE_ERROR)
    cluster.room.fail_once(znodes.CONTROLLER_EPOCH)
    with pytest.raises(MalformedReply):
        await create(cluster, [1, 2])
    assert cluster.room.term.store.writer.pop_refused_paths() == [znodes.TOPICS], "the list of topics is read again"

    requests = await cluster.do(on_topic_change, TopicChange())

    assert "SR a-0@-2+delete -> 2" in requests
    assert "LISR a-0=1/[1]/0/0+new -> 1" in requests
    assert "LISR a-0=1/[1]/0/0+new -> 2" in await cluster.answer(2)


async def test_an_unclean_election_passes_over_a_broker_until_it_confirms_the_deletion_of_its_earlier_log() -> None:
    cluster = await deleted_offline()
    await begin_term(cluster, WITHOUT_IDS)
    await cluster.room.write_topic("b", [(1, 2)])
    await create(cluster, [1, 2])
    config = b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}'
    cluster.room.ensemble.apply([Set(znodes.topic_config_path(topic), config) for topic in "ab"])
    await cluster.kill(1)

    await cluster.start(2)
    assert cluster.room.now("a-0") == "-1 / [1] / 2 / 2"
    assert cluster.room.now("b-0") == "2 / [2] / 2 / 2"  # a topic of which nothing is pending

    await cluster.answer(2)
    assert cluster.room.now("a-0") == "2 / [2] / 3 / 3"


@pytest.mark.parametrize("ibp", PROTOCOLS.values(), ids=PROTOCOLS)
async def test_a_topic_that_becomes_readable_does_not_cost_the_log_of_its_leader(ibp: Ibp) -> None:
    """Its states are unknown to the controller until then, and its znode looks like that of a new topic."""
    cluster = await deleted_offline()
    await begin_term(cluster, ibp)
    await create(cluster, [2, 1])
    await cluster.start(2)
    cluster.room.write_state("a-0", LeaderAndIsr(BrokerId(2), 0, (BrokerId(2),), 1, 1))
    path = znodes.topic_path("a")
    payload = cluster.room.ensemble.nodes[path].data
    assert payload is not None
    cluster.room.ensemble.apply([Set(path, b"{")])
    await begin_term(cluster, ibp)
    cluster.room.ensemble.apply([Set(path, payload)])

    requests = await cluster.do(on_partition_modifications, PartitionModifications("a"))

    assert not any(r.startswith("SR") for r in requests)


# ---- reassignments


@pytest.mark.parametrize("ibp", PROTOCOLS.values(), ids=PROTOCOLS)
async def test_a_reassignment_deletes_the_earlier_log_before_it_adds_a_replica(ibp: Ibp) -> None:
    cluster = await deleted_offline()
    await begin_term(cluster, ibp)
    await create(cluster, [1])
    await cluster.start(2)
    await cluster.answer(2, ErrorCode.KAFKA_STORAGE_ERROR)
    wanted = {TopicPartition("a", 0): (BrokerId(1), BrokerId(2))}

    requests = await cluster.do(on_api_reassignment, ApiPartitionReassignment(wanted))

    assert position(requests, "SR a-0@-2+delete", 2) < position(requests, "LISR a-0=", 2)


@pytest.mark.parametrize("ibp", PROTOCOLS.values(), ids=PROTOCOLS)
async def test_a_deletion_that_is_not_answered_is_not_repeated_for_a_reassignment(ibp: Ibp) -> None:
    """LeaderAndIsr followed it, and made the log of the later topic: a second StopReplica would delete that."""
    cluster = await deleted_offline_then_created_again()
    await begin_term(cluster, ibp)
    requests = await cluster.start(2)
    assert position(requests, "SR a-0@-2+delete", 2) < position(requests, "LISR a-0=", 2)
    wanted = {TopicPartition("a", 0): (BrokerId(1), BrokerId(2), BrokerId(3))}

    requests = await cluster.do(on_api_reassignment, ApiPartitionReassignment(wanted))

    assert any(r.startswith("LISR") for r in requests)
    assert not any(r.startswith("SR") for r in requests)


async def test_an_answer_to_a_leader_and_isr_before_an_unanswered_deletion_does_not_repeat_it() -> None:
    cluster = await deleted_offline_then_created_again()
    await cluster.kill(1)
    assert not any(r.startswith("SR") for r in await cluster.start(2)), "it is asked by LeaderAndIsr"
    await cluster.start(1)
    wanted = {TopicPartition("a", 0): (BrokerId(1), BrokerId(2), BrokerId(3))}
    assert "SR a-0@-2+delete -> 2" in await cluster.do(on_api_reassignment, ApiPartitionReassignment(wanted))

    assert await leader_and_isr_answer(cluster, 2, ErrorCode.INCONSISTENT_TOPIC_ID) == []

    assert any(r.startswith("LISR a-0=") and r.endswith("+new -> 2") for r in await cluster.answer(2))
    assert cluster.pending_deletions() == []


async def test_a_deletion_that_an_answer_caused_is_not_repeated_for_a_reassignment() -> None:
    """A LeaderAndIsr for another change of the partition may have followed it."""
    cluster = await deleted_offline_then_created_again()
    await cluster.kill(1)
    await cluster.start(2)
    assert await leader_and_isr_answer(cluster, 2, ErrorCode.INCONSISTENT_TOPIC_ID) == ["SR a-0@-2+delete -> 2"]
    await cluster.start(1)
    wanted = {TopicPartition("a", 0): (BrokerId(1), BrokerId(2), BrokerId(3))}

    requests = await cluster.do(on_api_reassignment, ApiPartitionReassignment(wanted))

    assert any(r.startswith("LISR") for r in requests)
    assert not any(r.startswith("SR") for r in requests)
