"""Requests to a sound cluster, and how long each answer takes: to a topic of their own, after the checks at rest.

Amid faults most answers are late for a reason. Here nothing delays them: one that comes with a timer was forgotten.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from klamm.client.asynchronous import AsyncClient
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.clients.offset_requests import (
    CONSUMER,
    DEBUGGER,
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    DescribedLog,
    EpochEnd,
    described_logs,
    epoch_end,
    list_offset,
)
from klamm.sim.cluster_tier.clients.plain_requests import (
    FetchSession,
    delete_before,
    fetch_once,
    old_style_offsets,
    produce,
    produce_message,
    read_values,
)
from klamm.sim.cluster_tier.rest_damage import damage_records
from klamm.sim.cluster_tier.rest_refusals import ask_for_what_is_refused
from klamm.sim.cluster_tier.rest_replicas import copy_a_replica
from klamm.sim.cluster_tier.rest_sizes import fetch_in_pieces, wait_for_more
from klamm.sim.cluster_tier.rest_topic import (
    ASK_MS,
    LONG_MS,
    MANY_BYTES,
    MOVE_S,
    TIMEOUT_S,
    TOPIC,
    UNTIL_IT_WAITS_S,
    RestTopic,
    address,
    count,
    error_of,
    partition,
)

_ENOUGH_BATCHES: Final = 8
_MAX_SESSIONS: Final = 12
_FORMER_LEADER: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_NOWHERE: Final = (ErrorCode.NONE, -1)


class RestRequests(RestTopic):
    """`await run()` once; `answers` then has what was asked, and how long each answer took."""

    async def run(self) -> None:
        """Send all requests, one after the other."""
        steps: list[Callable[[], Awaitable[None]]] = [
            self.create_topic,
            self._read_in_a_session,
            self._delete_records,
            self._move_log,
            self._open_sessions,
            self._speak_old_versions,
            self._read_all,
            self._ask_about_offsets,
            self._describe_logs,
            partial(ask_for_what_is_refused, self),
            partial(wait_for_more, self),
            partial(copy_a_replica, self),
            partial(fetch_in_pieces, self),
            partial(damage_records, self),
            self._write_to_a_new_leader,
            self._change_leader,
            self._read_all,
        ]
        for step in steps:
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await step()
            except (KlammError, TimeoutError, OSError) as error:
                self.note(_name_of(step), 0.0, wrong=repr(error))
                return

    async def _read_in_a_session(self) -> None:
        """A waiting fetch is answered as soon as a partition of its session changes, and loses nothing."""
        leader, p, other = self.replicas[0], partition(0), partition(2)
        async with self.client("session") as client:
            session = FetchSession(client, address(leader))
            await session.fetch({p: 0, other: 0})
            if not session.id:
                return
            waiting = asyncio.ensure_future(session.fetch({}, LONG_MS))
            await self.send(other)
            self.expect("records of the changed partition", await self.timed("a waiting fetch", waiting, other), 1)
            abandoned = asyncio.ensure_future(session.fetch({other: 1}, LONG_MS, MANY_BYTES))
            await self.send(p)
            client.drop(address(leader))
            await asyncio.gather(abandoned, return_exceptions=True)
            await asyncio.sleep(UNTIL_IT_WAITS_S)
            repeated = await session.fetch({})
            self.expect("records that were read for a lost connection", count(repeated, p), 1)
            await session.fetch({p: 1}, forgotten=[other])
            await self.send(other)
            self.expect("a forgotten partition", other in await session.fetch({}, 1), False)

    async def _delete_records(self) -> None:
        """DeleteRecords is answered when the followers have deleted, too; all learn of the new log start."""
        leader, p = self.replicas[0], partition(0)
        await self.send(p)
        async with self.client("deleting") as client, self.client("reader") as reader:
            session = FetchSession(reader, address(leader))
            await session.fetch({p: self.end(p)})
            self.cluster.tier.deleted_before[p] = 1
            began_s = self.cluster.loop.now
            error, low = await delete_before(client, address(leader), p, 1, ASK_MS)
            self.note("DeleteRecords", self.cluster.loop.now - began_s)
            self.expect("DeleteRecords", (error, low), (ErrorCode.NONE, 1))
            if session.id:
                found = (await session.fetch({})).get(p)
                self.expect("the log start in a session", found.log_start if found is not None else None, 1)
            late = await fetch_once(client, address(leader), p, 0, LONG_MS)
            self.expect("a fetch before the log start", late.error, ErrorCode.OFFSET_OUT_OF_RANGE)
            del self.sent[p][:1]

    async def _open_sessions(self) -> None:
        """A broker that has no room for another fetch session keeps those that it has."""
        leader, p = self.replicas[1], partition(1)
        async with self.client("many sessions") as client:
            sessions: list[FetchSession] = []
            while len(sessions) < _MAX_SESSIONS:
                session = FetchSession(client, address(leader))
                await session.fetch({p: 0})
                if not session.id:
                    break
                sessions.append(session)
            for session in sessions:
                self.expect("a fetch in an open session", await session.fetch({}), {})
                session.end()
                await session.fetch({})

    async def _speak_old_versions(self) -> None:
        """Clients of old versions write and read the same records, in their message formats."""
        leader, follower, p = self.replicas[1], self.replicas[0], partition(1)
        async with self.client("old") as client:
            for magic in (0, 1):
                value = b"old/%d" % magic
                error = await produce_message(client, address(leader), p, self.record(value), magic)
                self.expect(f"Produce of format {magic}", error, ErrorCode.NONE)
                self.add(p, value)
            await self.send(p)
            for newest in (1, 3, 12):
                found = await read_values(client, address(leader), p, 0, newest)
                self.expect(f"Fetch of version {newest}", found, self.sent[p])
            offsets = await old_style_offsets(client, address(leader), p)
            self.expect("ListOffsets of version 0", offsets, (ErrorCode.NONE, (self.end(p), 0)))
            refused, _ = await old_style_offsets(client, address(follower), p)
            self.expect("ListOffsets of version 0 at a follower", refused, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def _ask_about_offsets(self) -> None:
        """The leader, and no other replica, tells consumers the ends of the log and of its epoch, as the files say."""
        leader, follower, p = self.replicas[0], self.replicas[1], partition(0)
        await asyncio.sleep(UNTIL_IT_WAITS_S)
        await self.send(p)
        epoch, end, broker = self.state(p).leader_epoch, self.end(p), address(leader)
        start, newest_ms = end - len(self.sent[p]), self.newest_ms
        expected = {LATEST: end, EARLIEST: start, MAX_TIMESTAMP: end - 1, newest_ms: end - 1, newest_ms + 1: -1}
        async with self.client("offsets") as client:
            for timestamp, offset in expected.items():
                for is_committed in (False, True):
                    found = await list_offset(client, broker, p, timestamp, CONSUMER, is_committed)
                    self.expect(f"ListOffsets of {timestamp}", found[:2], (ErrorCode.NONE, offset))
                    self.expect(f"the epoch of {timestamp}", found.leader_epoch, epoch if offset >= 0 else -1)
            refused = {
                epoch - 1: ErrorCode.FENCED_LEADER_EPOCH,
                epoch: ErrorCode.NONE,
                epoch + 1: ErrorCode.UNKNOWN_LEADER_EPOCH,
            }
            for known, error in refused.items():
                if known >= 0:
                    found = await list_offset(client, broker, p, LATEST, leader_epoch=known)
                    self.expect(f"ListOffsets in epoch {known} of {epoch}", found.error, error)
                    ended = await epoch_end(client, broker, p, epoch, known)
                    self.expect(f"OffsetForLeaderEpoch in epoch {known} of {epoch}", ended.error, error)
            self.expect("the end of the epoch", await epoch_end(client, broker, p, epoch), (0, epoch, end))
            self.expect(
                "the end of a later epoch",
                await epoch_end(client, broker, p, epoch + 1),
                EpochEnd(ErrorCode.NONE, -1, -1),
            )
            found = await list_offset(client, address(follower), p, LATEST)
            self.expect("ListOffsets at a follower", found.error, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            ended = await epoch_end(client, address(follower), p, epoch)
            self.expect("OffsetForLeaderEpoch at a follower", ended.error, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            found = await list_offset(client, address(follower), p, LATEST, DEBUGGER)
            self.expect("the log end of a follower", found[:2], (ErrorCode.NONE, end))

    async def _describe_logs(self) -> None:
        """DescribeLogDirs names each log, its directory and its size in bytes, as the files say."""
        async with self.client("describes") as client:
            for node in self.replicas:
                logs = [(p, self.cluster.tier.disks[node].of(p)) for p in map(partition, range(3))]
                expected = [
                    DescribedLog(log.directory.rpartition("/")[0], p.partition, log.size, 0, False)
                    for p, log in logs
                    if log is not None
                ]
                found = await described_logs(client, address(node), TOPIC, range(3))
                self.expect(f"DescribeLogDirs of node {node}", found, sorted(expected))

    async def _see_what_is_committed(self, client: AsyncClient, p: TopicPartition) -> None:
        """While a record waits for a follower, consumers find the log without it, and debuggers find it."""
        leader, end = address(self.state(p).leader), self.end(p)
        for is_committed in (False, True):
            found = await list_offset(client, leader, p, LATEST, CONSUMER, is_committed)
            self.expect("the end of what is committed", found[:2], (ErrorCode.NONE, end))
            for timestamp in (MAX_TIMESTAMP, self.newest_ms):
                found = await list_offset(client, leader, p, timestamp, CONSUMER, is_committed)
                self.expect(f"ListOffsets of {timestamp} before the commit", found[:2], _NOWHERE)
        found = await list_offset(client, leader, p, LATEST, DEBUGGER)
        self.expect("the end of the leader's log", found[:2], (ErrorCode.NONE, end + 1))

    async def _move_log(self) -> None:
        """The leader's log moves to another directory while a fetch waits, which then gets the next record at once."""
        if len(self.directories) == 1:
            return
        leader, p = self.replicas[0], partition(0)
        for _ in range(_ENOUGH_BATCHES):
            await self.send(p)
        async with self.client("waits") as client:
            waiting = asyncio.ensure_future(fetch_once(client, address(leader), p, self.end(p), LONG_MS))
            await asyncio.sleep(UNTIL_IT_WAITS_S)
            target = self.directories[0]
            await self.move(leader, (0,), target, (ErrorCode.NONE,))
            await self.until(lambda: self.is_in(leader, p, target), f"{p} is in {target}", MOVE_S)
            await self.send(p)
            self.expect("records after the move", await self.timed("a fetch during a move", waiting, p), 1)

    async def _change_leader(self) -> None:
        """All that waits at a leader is answered when it becomes follower: fetches, acks=all and DeleteRecords."""
        leader, successor, third = self.replicas
        p, network = partition(0), self.cluster.network
        async with (
            self.client("first") as first,
            self.client("second") as second,
            self.client("third") as producer,
            self.client("fourth") as deleter,
        ):
            await self.send(p)
            epoch = self.state(p).leader_epoch
            session, late = FetchSession(second, address(leader), epoch), self.record(b"late")
            await session.fetch({p: self.end(p)})
            network.cut(f"node-{third}", f"node-{leader}")
            waiting: dict[str, asyncio.Future[Any]] = {
                "a fetch": asyncio.ensure_future(fetch_once(first, address(leader), p, self.end(p), LONG_MS, epoch)),
                "acks=all": asyncio.ensure_future(produce(producer, address(leader), p, late, LONG_MS)),
                "DeleteRecords": asyncio.ensure_future(
                    delete_before(deleter, address(leader), p, self.end(p), LONG_MS)
                ),
            }
            if session.id:
                waiting["a fetch in a session"] = asyncio.ensure_future(session.fetch({}, LONG_MS))
            await asyncio.sleep(UNTIL_IT_WAITS_S)
            early = [(what, answer.result()) for what, answer in waiting.items() if answer.done()]
            self.expect("what is answered while a follower is cut off", early, [])
            async with self.client("asks meanwhile") as asking:
                await self._see_what_is_committed(asking, p)
            await self.reassign(p, (successor, leader, third))
            elected = asyncio.ensure_future(self.elect(0))
            await self.until(lambda: self.leads(successor, p), "the preferred replica leads", MOVE_S)
            began_s = self.cluster.loop.now
            for what, answer in waiting.items():
                found = await answer
                self.note(f"{what} at a former leader", self.cluster.loop.now - began_s)
                self.expect(f"{what} at a former leader", error_of(found, p) in _FORMER_LEADER, True)
            network.end_cut(f"node-{third}", f"node-{leader}")
            await elected
        self.sent[p].clear()

    async def _write_to_a_new_leader(self) -> None:
        """The first record in a new leader epoch waits for no fetch of a follower that was under way before it."""
        (leader, other, third), p = self.replicas, partition(1)
        await self.reassign(p, (leader, other, third))
        elected = asyncio.ensure_future(self.elect(p.partition))
        await self.until(lambda: self.leads(leader, p), "the preferred replica leads", MOVE_S)
        await elected
        await self.send(p)

    async def _read_all(self) -> None:
        """Each acknowledged record is read once, in order."""
        for p in self.sent:
            leader = address(self.state(p).leader)
            async with self.client(f"reads {p.partition}") as client:
                found = await read_values(client, leader, p, self.end(p) - len(self.sent[p]))
                values = [value for value in found if value != b"late"]
                self.expect(f"the records of {p}", values, self.sent[p])


def _name_of(step: Any) -> str:
    """The name of a step."""
    name: str = getattr(step, "func", step).__name__
    return name.strip("_")
