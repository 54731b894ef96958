"""How much a fetch gets, and when: limits in bytes, turns of partitions, and how long it waits for more."""

from typing import Final

from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.clients.plain_requests import FetchSession, fetch_once
from klamm.sim.cluster_tier.rest_topic import MANY_BYTES, PROMPT_S, RestTopic, address, partition

_WAIT_MS: Final = 300
_LEAST: Final = 1
"""In bytes: less than any batch."""
_BATCHES: Final = 3


async def wait_for_more(rest: RestTopic) -> None:
    """A fetch that wants more bytes than there are gets what there is when its wait is over, and not before."""
    leader, p = rest.replicas[0], partition(2)
    await rest.send(p)
    async with rest.client("waits for more") as client:
        began_s = rest.cluster.loop.now
        found = await fetch_once(client, address(leader), p, rest.end(p) - 1, _WAIT_MS, min_bytes=MANY_BYTES)
        took_s = rest.cluster.loop.now - began_s
    rest.note("a fetch that waits for more", took_s, _WAIT_MS / 1000 + PROMPT_S)
    rest.expect("a fetch that waits for more has waited", took_s >= _WAIT_MS / 1000, True)
    rest.expect("what there was after the wait", found.values, rest.sent[p][-1:])


async def fetch_in_pieces(rest: RestTopic) -> None:
    """A response with room for no batch has one nevertheless, and the partitions of a session take turns (KIP-74)."""
    leader, partitions = rest.replicas[0], (partition(0), partition(2))
    for p in partitions:
        for _ in range(_BATCHES):
            await rest.send(p)
    read: dict[TopicPartition, list[bytes]] = {p: [] for p in partitions}
    turns: list[TopicPartition] = []
    async with rest.client("fetches in pieces") as client:
        session = FetchSession(client, address(leader))
        found = await session.fetch({p: rest.end(p) - _BATCHES for p in partitions}, max_bytes=_LEAST)
        if not session.id:
            return
        while with_records := [p for p, data in found.items() if data.values]:
            rest.expect("partitions with records in a response with room for none", len(with_records), 1)
            p, *_ = with_records
            rest.expect("batches in a response with room for none", len(found[p].values), 1)
            if len(turns) > 1 and all(len(values) < _BATCHES for values in read.values()):
                rest.expect("the next partition with records", p != turns[-1], True)
            read[p] += found[p].values
            turns.append(p)  # the first is that of the full fetch, after which none moves to the end
            position = rest.end(p) - _BATCHES + len(read[p])
            found = await session.fetch({p: position}, max_bytes=_LEAST)
        session.end()
        await session.fetch({})
    for p in partitions:
        rest.expect(f"what was read of {p} in pieces", read[p], rest.sent[p][-_BATCHES:])
