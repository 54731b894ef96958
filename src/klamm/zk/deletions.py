"""How a topic leaves ZooKeeper, and the record of replicas that have to go and are not known to be gone.

`/klamm/condemned_replicas/BROKER/TOPIC-ID` is klamm's own: `{"version":1,"topic":"orders","partitions":[0,3]}`. It is
written before the topic's znodes go, or before a reassignment takes those replicas from the topic's znode, and goes
itself once the broker has deleted what it names. It may name more than that: what is there again is never deleted.
Source of the rest: KafkaZkClient.deleteTopicZNode, deleteTopicConfigs, deleteTopicDeletions (3.9).
"""

import uuid
from collections.abc import Collection, Container, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from klamm.model.ids import BrokerId
from klamm.model.topic_ids import id_from_text
from klamm.zk import znodes
from klamm.zk.controller_store import ControllerStore
from klamm.zk.errors import ZkCode, error_of
from klamm.zk.fenced import chunks
from klamm.zk.operations import Create, Delete, Op, Set
from klamm.zk.znodes import (
    CONDEMNED_REPLICAS,
    Int32,
    MalformedZnode,
    broker_of,
    condemned_path,
    decode_json,
    encode_json,
)

LIST_CHUNK: Final = 2_000  # znodes listed or deleted between two awaits


class Condemned(NamedTuple):
    """What one broker may still hold of one topic that is deleted, or that moved away from it."""

    broker: BrokerId
    topic: str
    topic_id: uuid.UUID
    partitions: tuple[int, ...]


class _Condemned(msgspec.Struct):
    topic: str
    partitions: tuple[Int32, ...]


async def delete_topics(store: ControllerStore, topics: Sequence[str]) -> dict[str, str]:
    """Everything below each topic, then the topic with its config; what is gone is no matter. The requests go last.

    Why not, by topic, for those that stay, for example because somebody put something below them. After a crash in
    between the request is still there, and the next controller begins again.
    """
    paths = [znodes.topic_path(t) for t in topics]
    below = reversed(await _levels_below(store, paths))
    failed: dict[str, str] = {}
    for level in (*below, [*paths, *(znodes.topic_config_path(t) for t in topics)]):
        left = await _try_deleting(store, [path for path in level if _topic_of(path) not in failed])
        failed |= {_topic_of(path): f"{path} cannot be deleted: {code.name}" for path, code in left.items()}
    return failed


def _topic_of(path: str) -> str:
    """Of `/brokers/topics/TOPIC/...` and `/config/topics/TOPIC`."""
    return path.split("/")[3]


async def delete_requests(store: ControllerStore, topics: Iterable[str]) -> dict[str, str]:
    """Why not, by path, for those that stay."""
    return await _remove(store, [znodes.delete_topic_path(t) for t in topics])


async def _levels_below(store: ControllerStore, paths: Sequence[str]) -> list[list[str]]:
    """All znodes under these, those nearest to the root first."""
    levels: list[list[str]] = []
    parents = paths
    while parents:
        level: list[str] = []
        for chunk in chunks(parents, LIST_CHUNK):
            for listed in await store.client.children_many(chunk):
                level += [f"{listed.path}/{child}" for child in listed.children]
        if level:
            levels.append(level)
        parents = [path for path in level if not path.endswith("/state")]
    return levels


async def _remove(store: ControllerStore, paths: Sequence[str]) -> dict[str, str]:
    return {path: f"it cannot be removed: {code.name}" for path, code in (await _try_deleting(store, paths)).items()}


async def _try_deleting(store: ControllerStore, paths: Sequence[str]) -> dict[str, ZkCode]:
    """What stays, with ZooKeeper's reason."""
    failed: dict[str, ZkCode] = {}
    for chunk in chunks(paths, LIST_CHUNK):
        for path, result in zip(chunk, await store.write([Delete(path) for path in chunk]), strict=True):
            if result.code not in (ZkCode.OK, ZkCode.NO_NODE):
                failed[path] = result.code
    return failed


# ---- condemned replicas


async def read_condemned(store: ControllerStore) -> tuple[list[Condemned], dict[str, str]]:
    """All there are, in order of brokers; and the reasons for those that cannot be read, by path."""
    brokers = (await store.client.children_many([CONDEMNED_REPLICAS]))[0].children
    numbers = sorted(b for b in map(broker_of, brokers) if b is not None)
    listed = await store.client.children_many([f"{CONDEMNED_REPLICAS}/{b}" for b in numbers])
    names = [(b, child) for b, answer in zip(numbers, listed, strict=True) for child in sorted(answer.children)]
    found: list[Condemned] = []
    unreadable: dict[str, str] = {}
    for read in await store.client.get_many([f"{CONDEMNED_REPLICAS}/{b}/{child}" for b, child in names]):
        if read.code is not ZkCode.OK:
            continue
        try:
            found.append(decode_condemned(read.path, read.data))
        except MalformedZnode as error:
            unreadable[read.path] = error.reason
    return found, unreadable


async def write_condemned(
    store: ControllerStore, condemned: Collection[Condemned], written: Container[tuple[BrokerId, uuid.UUID]]
) -> None:
    """In place of what is there for the same broker and topic id, as for those in `written`. Raises ZkError."""
    await _make_parents(store, {str(c.broker): None for c in condemned})
    records = {condemned_path(c.broker, c.topic_id): _encode(c) for c in condemned}
    there = {condemned_path(c.broker, c.topic_id) for c in condemned if (c.broker, c.topic_id) in written}
    ops: list[Op] = [Set(path, data) if path in there else Create(path, data) for path, data in records.items()]
    results = await store.write(ops)
    wrong = [op for op, r in zip(ops, results, strict=True) if r.code in (ZkCode.NODE_EXISTS, ZkCode.NO_NODE)]
    again: list[Op] = [Create(op.path, records[op.path]) if op.path in there else Set(op.path, records[op.path])
                       for op in wrong]  # fmt: skip
    last = dict(zip((op.path for op in ops), results, strict=True))
    last |= zip((op.path for op in again), await store.write(again), strict=True)
    for path, result in last.items():
        if result.code is not ZkCode.OK:
            raise error_of(result.code, path)


async def _make_parents(store: ControllerStore, brokers: Iterable[str]) -> None:
    there = frozenset((await store.client.children_many([CONDEMNED_REPLICAS]))[0].children)
    missing = [b for b in brokers if b not in there]
    if missing:
        await _create(store, [Create(path) for path in ("/klamm", CONDEMNED_REPLICAS)])
        await _create(store, [Create(f"{CONDEMNED_REPLICAS}/{b}") for b in missing])


async def delete_condemned(store: ControllerStore, names: Iterable[tuple[BrokerId, uuid.UUID]]) -> dict[str, str]:
    """Why not, by path, for those that stay."""
    return await _remove(store, [condemned_path(broker, topic_id) for broker, topic_id in names])


async def _create(store: ControllerStore, ops: Sequence[Op]) -> None:
    for op, result in zip(ops, await store.write(ops), strict=True):
        if result.code not in (ZkCode.OK, ZkCode.NODE_EXISTS):
            raise error_of(result.code, op.path)


def _encode(condemned: Condemned) -> bytes:
    return encode_json({"version": 1, "topic": condemned.topic, "partitions": condemned.partitions})


def decode_condemned(path: str, payload: bytes | None) -> Condemned:
    """Raises MalformedZnode."""
    broker, _, topic_id = path.removeprefix(f"{CONDEMNED_REPLICAS}/").partition("/")
    read = decode_json(path, payload, _Condemned)
    try:
        return Condemned(BrokerId(int(broker)), read.topic, id_from_text(topic_id), read.partitions)
    except ValueError as error:
        raise MalformedZnode(path, str(error)) from error
