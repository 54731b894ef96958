"""After a leader's death, brokers learn of the first new leaders while others are still elected."""

import asyncio

import pytest
from tests.support.controller_room import Room
from tests.unit.controller.request_scene import Scene, ids

from klamm.controller.events import BrokerChange
from klamm.controller.handlers import failover, partitions
from klamm.controller.handlers.brokers import on_broker_change
from klamm.model.ids import BrokerId


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "WRITE_PARTITIONS", 1)
    monkeypatch.setattr(partitions, "REQUEST_PARTITIONS", 2)


async def test_leader_and_isr_of_the_first_elections_is_sent_before_the_last_election_is_written() -> None:
    room = await Room.open(topics={"a": [(1, 2, 3)] * 9})
    room.kill(1)
    unwritten_at_send: list[int] = []
    send = room.term.batch.send

    async def noted(cause: str) -> None:
        states = [room.ensemble.nodes[f"/brokers/topics/a/partitions/{n}/state"].version for n in range(9)]
        unwritten_at_send.append(states.count(0))
        await send(cause)

    room.term.batch.send = noted  # type: ignore[method-assign]
    requests = await room.handle(on_broker_change, BrokerChange())

    assert unwritten_at_send[0] > 5
    leaders = [r for r in requests if r.startswith("LISR")]
    assert len(leaders) > 3
    told = [word for r in leaders for word in r.split() if word.startswith("a-")]
    assert sorted(told) == [f"a-{n}=2/[2,3]/1/1" for n in range(9)]


async def test_elections_for_a_broker_that_returns_are_sent_with_its_replicas_in_one_request() -> None:
    room = await Room.open(brokers=(1, 2), topics={"a": [(2,)] * 9})
    room.kill(2)
    await room.handle(on_broker_change, BrokerChange())
    await room.register(2)

    requests = await room.handle(on_broker_change, BrokerChange())

    [leaders] = [r for r in requests if r.startswith("LISR")]
    assert leaders == f"LISR {' '.join(f'a-{n}=2/[2]/2/2' for n in range(9))} -> 2"


async def test_internal_topics_get_their_new_leaders_first() -> None:
    room = await Room.open(topics={"a": [(1, 2)] * 3, "__consumer_offsets": [(1, 2)] * 2, "b": [(1, 2)]})
    room.kill(1)

    requests = await room.handle(on_broker_change, BrokerChange())

    told = [word.split("-")[0] for r in requests if r.startswith("LISR") for word in r.split()[1:] if "=" in word]
    assert told == ["__consumer_offsets"] * 2 + ["a"] * 3 + ["b"]


async def test_a_new_controller_elects_and_sends_a_few_leaders_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "WRITE_PARTITIONS", 1)
    monkeypatch.setattr(failover, "REQUEST_PARTITIONS", 3)
    room = await Room.open(topics={"a": [(1, 2)] * 6})
    room.kill(1)
    room.channels.take()

    await room.become_controller()

    leaders = [r for r in room.channels.take() if r.startswith("LISR")]
    assert [r.count("=2/[2]/2/2") for r in leaders[1:]] == [1, 3, 2]


async def test_changes_added_together_are_sent_as_if_they_were_added_one_by_one() -> None:
    sent: list[list[tuple[int, str, list[str]]]] = []
    for together in (True, False):
        scene = Scene(partitions=3)
        a, b, c = scene.partitions
        if together:
            scene.batch.add_changes([a, b, c], {BrokerId(1): [a, c], BrokerId(2): [b], BrokerId(99): [a]})
        else:
            for brokers, p in ((ids(1, 99), a), (ids(2), b), (ids(1), c)):
                scene.batch.add_leader_and_isr(brokers, p, is_new=False)
        await scene.batch.send("c")
        sent.append([(to, type(item).__name__, list(map(str, item.partitions))) for to, item in scene.outbox.sent])

    assert sent[0] == sent[1]
    assert len(sent[0]) > 3


async def test_what_is_added_to_a_request_batch_while_it_is_sent_waits_for_the_next_send() -> None:
    scene = Scene(partitions=600)
    first, later = scene.partitions[:599], scene.partitions[599]
    for p in first:
        scene.batch.add_leader_and_isr(ids(1), p, is_new=False)
    sending = asyncio.create_task(scene.batch.send("c"))
    await asyncio.sleep(0)
    assert not sending.done(), "the send takes several passes of the loop"

    scene.batch.add_leader_and_isr(ids(1), later, is_new=False)
    assert not scene.batch.is_empty
    await asyncio.gather(sending, scene.batch.send("d"))

    sent = [(p, item.causes) for b, item in scene.outbox.sent if b == 1 for p in item.partitions]
    assert sent.count((later, ("c",))) == 0
    assert sent.count((later, ("d",))) == 2  # LeaderAndIsr and UpdateMetadata
    assert scene.batch.is_empty
