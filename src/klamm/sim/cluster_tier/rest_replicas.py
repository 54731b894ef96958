"""A follower of a topic at rest is removed and comes back: what it copies, how fast, and whom that delays."""

import asyncio
from functools import partial
from typing import Final

from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.clients.plain_requests import delete_before
from klamm.sim.cluster_tier.logs_on_disk import BatchIdentity
from klamm.sim.cluster_tier.operations import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    THROTTLED_RATES,
    THROTTLED_REPLICAS,
    TOPIC_RESOURCE,
    UNLIMITED,
    set_configs,
)
from klamm.sim.cluster_tier.rest_topic import ASK_MS, MOVE_S, PROMPT_S, TOPIC, RestTopic, address, partition

_BATCHES: Final = 8
_BATCH_BYTES: Final = 800
"""More than half a segment: no fetch gets more than one batch."""
_RATE: Final = 2_000
_SLACK_S: Final = 2.5
"""Limits are looked at again after a second, at most, and a change of the ISR takes some round trips."""
_DEVICE_CALLS: Final = 20
"""Syncs of what is copied come before those of what is acknowledged meanwhile."""
_FOLLOWED_S: Final = 0.5
"""Until all brokers have read changed configs."""
_MESSAGES_IN: Final = "kafka_server_brokertopicmetrics_messagesin_total"
_BYTES_IN: Final = "kafka_server_brokertopicmetrics_bytesin_total"
_ISR_EXPANDS: Final = "kafka_server_replicamanager_isrexpands_total"
_ISR_SHRINKS: Final = "kafka_server_replicamanager_isrshrinks_total"
_FAILED_ISR_UPDATES: Final = "kafka_server_replicamanager_failedisrupdates_total"
_THROTTLED_SHARE: Final = 3
"""In one of so many schedules the copying is throttled: it takes some seconds."""


async def copy_a_replica(rest: RestTopic) -> None:
    """A new replica gets the log from its start on, which lies inside of a batch, and then joins the ISR."""
    (leader, other, third), p = rest.replicas, partition(2)
    await rest.send(p, records=3)
    await _delete_before(rest, p, rest.end(p) - 2)
    await rest.reassign(p, (leader, other))
    await rest.until(lambda: rest.cluster.tier.disks[third].of(p) is None, f"node {third} has no log of {p}", MOVE_S)
    before = await rest.metrics(leader)
    size = sum([await rest.send(p, _BATCH_BYTES) for _ in range(_BATCHES)])
    await rest.expect_growth(leader, before, {_MESSAGES_IN: _BATCHES, _BYTES_IN: size})
    limited = THROTTLED_RATES[rest.cluster.options.seed // _THROTTLED_SHARE % 2]
    is_throttled = rest.cluster.options.seed % _THROTTLED_SHARE == 0
    if is_throttled:
        await _throttle(rest, limited)
    began_s = rest.cluster.loop.now
    await rest.reassign(p, rest.replicas)
    for number in (0, 1) if is_throttled else ():
        await rest.send(partition(number), most_s=PROMPT_S + _DEVICE_CALLS * rest.cluster.options.device_s)
    await rest.until(partial(rest.is_complete, p), f"{p} has its replicas again", MOVE_S + size / _RATE + _SLACK_S)
    if is_throttled:
        _judge_rate(rest, limited, size, rest.cluster.loop.now - began_s)
    _compare(rest, p, third)
    await rest.expect_growth(leader, before, {_ISR_EXPANDS: 1, _ISR_SHRINKS: 0, _FAILED_ISR_UPDATES: 0})
    if len(rest.directories) > 1:
        await _move(rest, third, p, size, is_throttled=is_throttled)
    if is_throttled:
        await _throttle(rest, None)


async def _delete_before(rest: RestTopic, p: TopicPartition, offset: int) -> None:
    """Delete the records before an offset inside of a batch."""
    rest.cluster.tier.deleted_before[p] = offset
    async with rest.client("deletes inside of a batch") as client:
        found = await delete_before(client, address(rest.state(p).leader), p, offset, ASK_MS)
    rest.expect(f"DeleteRecords inside of a batch of {p}", found, (ErrorCode.NONE, offset))
    del rest.sent[p][: len(rest.sent[p]) - (rest.end(p) - offset)]


async def _throttle(rest: RestTopic, limited: str | None) -> None:
    """Limit one of the rates, for all replicas of the topic; None ends all limits."""
    replicas = dict.fromkeys(THROTTLED_REPLICAS, "*")
    rates = dict.fromkeys(THROTTLED_RATES, UNLIMITED) | ({limited: str(_RATE)} if limited is not None else {})
    for kind, name, configs in ((TOPIC_RESOURCE, TOPIC, replicas), (BROKER_RESOURCE, ALL_BROKERS, rates)):
        rest.expect("a change of a throttle", await set_configs(rest.cluster, kind, name, configs), True)
    await asyncio.sleep(_FOLLOWED_S)


def _judge_rate(rest: RestTopic, limited: str, size: int, took_s: float) -> None:
    """So many bytes take at least so long at the limit: one batch may come before it, and one above it (KIP-73)."""
    least_s = (size - 2 * (_BATCH_BYTES + 200)) / _RATE
    is_slow = took_s >= least_s
    rest.expect(f"{limited} of {_RATE} for {size} bytes in {took_s:.1f} s, at least {least_s:.1f} s", is_slow, True)
    rest.note(f"{limited} of {_RATE} for {size} bytes", took_s, size / _RATE + _SLACK_S)


def _compare(rest: RestTopic, p: TopicPartition, node: int) -> None:
    """The log of the node has the batches of the leader's, from that of the log start on."""
    start = rest.end(p) - len(rest.sent[p])
    expected = _batches(rest, rest.state(p).leader, p, start)
    rest.expect(f"the batches of {p} on node {node}", _batches(rest, node, p, start), expected)


def _batches(rest: RestTopic, node: int, p: TopicPartition, start: int) -> list[BatchIdentity]:
    """The batches of a log with records from an offset on."""
    log = rest.cluster.tier.disks[node].of(p)
    return [batch for batch in log.identities() if batch.last_offset >= start] if log is not None else []


async def _move(rest: RestTopic, node: int, p: TopicPartition, size: int, *, is_throttled: bool) -> None:
    """Move a log that begins inside of a batch to another directory, and perhaps limit how fast that is."""
    limited = THROTTLED_RATES[2]
    if is_throttled:
        await _throttle(rest, limited)
    target = next(directory for directory in rest.directories if not rest.is_in(node, p, directory))
    began_s = rest.cluster.loop.now
    await rest.move(node, (p.partition,), target, (ErrorCode.NONE,))
    await rest.until(lambda: rest.is_in(node, p, target), f"{p} is in {target}", MOVE_S + size / _RATE + _SLACK_S)
    if is_throttled:
        _judge_rate(rest, limited, size, rest.cluster.loop.now - began_s)
    _compare(rest, p, node)
