"""Requests that a cluster at rest has to refuse, each with the error that Kafka answers."""

from typing import Final

from klamm.client.asynchronous import AsyncClient
from klamm.client.errors import RequestRefused
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.clients.plain_requests import FetchSession, delete_before, fetch_once, produce_batch
from klamm.sim.cluster_tier.rest_topic import ASK_MS, LONG_MS, TOPIC, RestTopic, address, partition
from klamm.wire.records.build import build_batch

_UNKNOWN: Final = TopicPartition(TOPIC, 9)
_NO_SESSION: Final = 77
_ALL: Final = -1
_LEADER: Final = 1
_NO_SUCH_ACKS: Final = 2
_NOWHERE: Final = "/nowhere"


async def ask_for_what_is_refused(rest: RestTopic) -> None:
    """Each wrong request is refused, changes nothing, and delays nobody."""
    async with rest.client("asks for what is refused") as client:
        await _write(rest, client)
        await _delete(rest, client)
        await _fetch(rest, client)
    leader, p = rest.replicas[0], partition(2)
    await rest.move(leader, (p.partition,), _NOWHERE, (ErrorCode.LOG_DIR_NOT_FOUND,))
    await rest.move(leader, (_UNKNOWN.partition,), rest.directories[-1], (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,))
    await rest.move(leader, (p.partition,), rest.directories[-1], (ErrorCode.NONE,))
    rest.expect("a move to the present log directory", rest.is_in(leader, p, rest.directories[-1]), True)
    await rest.send(p)


async def _write(rest: RestTopic, client: AsyncClient) -> None:
    """Produce with invalid acks, at a follower, to an unknown partition, and with a damaged batch."""
    leader, follower, p = rest.replicas[0], rest.replicas[1], partition(2)
    batch = build_batch([rest.record(b"refused")])
    damaged = batch[:-1] + bytes([batch[-1] ^ 1])
    for broker, target, acks, content, error in (
        (leader, p, _NO_SUCH_ACKS, batch, ErrorCode.INVALID_REQUIRED_ACKS),
        (follower, p, _ALL, batch, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (follower, p, _LEADER, batch, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (leader, _UNKNOWN, _ALL, batch, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (leader, p, _ALL, damaged, ErrorCode.CORRUPT_MESSAGE),
    ):
        began_s = rest.cluster.loop.now
        found = await produce_batch(client, address(broker), target, content, LONG_MS, acks)
        rest.expect(f"Produce to {target} with acks={acks}, to be refused with {error.name}", found, error)
        rest.note("a refused Produce", rest.cluster.loop.now - began_s)


async def _delete(rest: RestTopic, client: AsyncClient) -> None:
    """DeleteRecords beyond the end, before 0, at a follower, and where there is nothing to delete."""
    leader, follower, p = rest.replicas[0], rest.replicas[1], partition(2)
    end = rest.end(p)
    start = end - len(rest.sent.get(p, ()))
    for broker, target, offset, expected in (
        (leader, p, end + 1, (ErrorCode.OFFSET_OUT_OF_RANGE, -1)),
        (leader, p, -2, (ErrorCode.OFFSET_OUT_OF_RANGE, -1)),
        (follower, p, start, (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)),
        (leader, _UNKNOWN, 0, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)),
        (leader, p, start, (ErrorCode.NONE, start)),
    ):
        began_s = rest.cluster.loop.now
        found = await delete_before(client, address(broker), target, offset, ASK_MS)
        rest.expect(f"DeleteRecords of {target} before {offset}", found, expected)
        rest.note("DeleteRecords that deletes nothing", rest.cluster.loop.now - began_s)


async def _fetch(rest: RestTopic, client: AsyncClient) -> None:
    """Fetch beyond the end, of an unknown partition, and in sessions that there are not."""
    leader, p = rest.replicas[0], partition(2)
    for target, offset, error in (
        (p, rest.end(p) + 1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (_UNKNOWN, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        began_s = rest.cluster.loop.now
        found = await fetch_once(client, address(leader), target, offset, LONG_MS)
        rest.expect(f"Fetch of {target} at {offset}", found.error, error)
        rest.note("a refused Fetch", rest.cluster.loop.now - began_s)
    session = FetchSession(client, address(leader))
    await session.fetch({p: rest.end(p)})
    if not session.id:
        return
    number, epoch = session.id, session.epoch
    stranger = FetchSession(client, address(leader))
    stranger.pretend(_NO_SESSION, 1)
    rest.expect("a session that there is not", await _refusal(stranger), ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    stranger.pretend(number, epoch + 1)
    rest.expect("a later epoch of a session", await _refusal(stranger), ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    rest.expect("the session afterwards", await session.fetch({}), {})
    session.end()
    await session.fetch({})
    stranger.pretend(number, epoch + 1)
    rest.expect("a session that has ended", await _refusal(stranger), ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


async def _refusal(session: FetchSession) -> ErrorCode:
    """The error of the whole response to a fetch in a session."""
    try:
        await session.fetch({})
    except RequestRefused as refused:
        return ErrorCode(refused.code)
    return ErrorCode.NONE
