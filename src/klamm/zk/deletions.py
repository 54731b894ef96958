"""How a topic leaves ZooKeeper, and the record of replicas that have to go and are not known to be gone.

`/klamm/condemned_replicas/BROKER/TOPIC-ID` is klamm's own: `{"version":1,"topic":"orders","partitions":[0,3]}`. It is
written before the topic's znodes go, or before a reassignment takes those replicas from the topic's znode, and goes
itself once the broker has deleted what it names. It may name more than that: what is there again is never deleted.
Source of the rest: KafkaZkClient.deleteTopicZNode, deleteTopicConfigs, deleteTopicDeletions (3.9).
"""

import uuid
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from klamm.model.ids import BrokerId
from klamm.model.topic_ids import id_from_text
from klamm.zk import znodes
from klamm.zk.controller_store import ControllerStore
from klamm.zk.errors import ZkCode
from klamm.zk.fenced import chunks
from klamm.zk.operations import Create, Delete, Set
from klamm.zk.znodes import (
    PENDING_DELETIONS,
    Int32,
    MalformedZnode,
    broker_of,
    decode_json,
    encode_json,
    pending_deletion_path,
)

LIST_CHUNK: Final = 2_000  # znodes listed or deleted between two awaits
REMEDY: Final = "an ACL forbids it: let klamm create, read, write and delete /klamm and what is below it (setAcl)"


class PendingDeletion(NamedTuple):
    """What one broker may still hold of one topic that is deleted, or that moved away from it."""

    broker: BrokerId
    topic: str
    topic_id: uuid.UUID
    partitions: tuple[int, ...]


class _PendingDeletion(msgspec.Struct):
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


# ---- replicas pending deletion


async def read_pending_deletions(store: ControllerStore) -> tuple[list[PendingDeletion], dict[str, str]]:
    """All there are, in order of brokers; and the reasons for those that cannot be read, by path."""
    [brokers] = await store.client.children_many([PENDING_DELETIONS])
    numbers = sorted(b for b in map(broker_of, brokers.children) if b is not None)
    listed = await store.client.children_many([f"{PENDING_DELETIONS}/{b}" for b in numbers])
    names = [(b, child) for b, answer in zip(numbers, listed, strict=True) for child in sorted(answer.children)]
    answers = {answer.path: answer.code for answer in (brokers, *listed)}
    found: list[PendingDeletion] = []
    unreadable: dict[str, str] = {}
    for read in await store.client.get_many([f"{PENDING_DELETIONS}/{b}/{child}" for b, child in names]):
        answers[read.path] = read.code
        if read.code is not ZkCode.OK:
            continue
        try:
            found.append(decode_pending_deletion(read.path, read.data))
        except MalformedZnode as error:
            unreadable[read.path] = error.reason
    return found, unreadable | _refusals(answers, "read")


async def write_pending_deletions(
    store: ControllerStore, pending: Collection[PendingDeletion], written: Container[tuple[BrokerId, uuid.UUID]]
) -> tuple[list[PendingDeletion], dict[tuple[str, BrokerId], str]]:
    """In place of what is there for the same broker and topic id, as for those in `written`.

    What is there and was never read (an ACL forbade it, perhaps) keeps what it names. As they are in ZooKeeper now; and
    why not, by topic and broker, for those that it refused.
    """
    above = await _make_parents(store, {str(c.broker): None for c in pending})
    records = {pending_deletion_path(c.broker, c.topic_id): c for c in pending}
    there = {path for path, c in records.items() if (c.broker, c.topic_id) in written}
    codes = await _write_records(store, records, there)
    lost = {path: records[path] for path, code in codes.items() if code is ZkCode.NO_NODE and path in there}
    codes |= await _write_records(store, lost, ())
    unread = [path for path, code in codes.items() if code is ZkCode.NODE_EXISTS]
    refused: dict[str, str] = {}
    if unread:
        shown, refused = await _merged(store, {path: records[path] for path in unread})
        records |= shown
        codes |= await _write_records(store, shown, shown)
    refused = _refusals({path: code for path, code in codes.items() if path not in refused}, "written") | refused
    for path in refused:
        if codes[path] is ZkCode.NO_NODE:  # what is above it could not be made
            refused[path] = next((why for parent, why in above.items() if path.startswith(parent)), refused[path])
    return (
        [record for path, record in records.items() if path not in refused],
        {(records[path].topic, records[path].broker): why for path, why in refused.items()},
    )


async def _write_records(
    store: ControllerStore, records: Mapping[str, PendingDeletion], there: Container[str]
) -> dict[str, ZkCode]:
    ops = [Set(path, _encode(c)) if path in there else Create(path, _encode(c)) for path, c in records.items()]
    return {op.path: result.code for op, result in zip(ops, await store.write(ops), strict=True)}


async def _merged(
    store: ControllerStore, records: Mapping[str, PendingDeletion]
) -> tuple[dict[str, PendingDeletion], dict[str, str]]:
    """With what is there under their names; and why not, where ZooKeeper does not show it."""
    merged: dict[str, PendingDeletion] = {}
    answers: dict[str, ZkCode] = {}
    for read in await store.client.get_many(list(records)):
        answers[read.path] = read.code
        if read.code is not ZkCode.OK:
            continue
        record = records[read.path]
        try:
            named = decode_pending_deletion(read.path, read.data).partitions
        except MalformedZnode:
            named = ()  # told as the term began; nobody would ever read it
        merged[read.path] = record._replace(partitions=tuple(sorted({*record.partitions, *named})))
    return merged, _refusals(answers, "read")


async def _make_parents(store: ControllerStore, brokers: Iterable[str]) -> dict[str, str]:
    """Why not, by path, for those that could not be made; they may be there all the same."""
    there = frozenset((await store.client.children_many([PENDING_DELETIONS]))[0].children)
    missing = [b for b in brokers if b not in there]
    if not missing:
        return {}
    made: dict[str, ZkCode] = {}
    for paths in (["/klamm", PENDING_DELETIONS], [f"{PENDING_DELETIONS}/{b}" for b in missing]):
        results = await store.write([Create(path) for path in paths])
        made |= {path: result.code for path, result in zip(paths, results, strict=True)}
    return _refusals({f"{path}/": code for path, code in made.items() if code is not ZkCode.NODE_EXISTS}, "made")


def _refusals(answers: Mapping[str, ZkCode], done: str) -> dict[str, str]:
    """In words, with the remedy; what is not there to be read is no refusal."""
    fine = (ZkCode.OK, ZkCode.NO_NODE) if done == "read" else (ZkCode.OK,)
    refused = {path: code for path, code in answers.items() if code not in fine}
    return {path: _why(path.rstrip("/"), code, done) for path, code in refused.items()}


def _why(path: str, code: ZkCode, done: str) -> str:
    why = f"{path} cannot be {done}: {code.name}"
    return f"{why}; {REMEDY}" if code is ZkCode.NO_AUTH else why


async def delete_pending_deletions(
    store: ControllerStore, names: Iterable[tuple[BrokerId, uuid.UUID]]
) -> dict[str, str]:
    """Why not, by path, for those that stay; the next term reads them again."""
    left = await _try_deleting(store, [pending_deletion_path(broker, topic_id) for broker, topic_id in names])
    return _refusals(left, "removed")


def _encode(record: PendingDeletion) -> bytes:
    return encode_json({"version": 1, "topic": record.topic, "partitions": record.partitions})


def decode_pending_deletion(path: str, payload: bytes | None) -> PendingDeletion:
    """Raises MalformedZnode."""
    broker, _, topic_id = path.removeprefix(f"{PENDING_DELETIONS}/").partition("/")
    read = decode_json(path, payload, _PendingDeletion)
    try:
        return PendingDeletion(BrokerId(int(broker)), read.topic, id_from_text(topic_id), read.partitions)
    except ValueError as error:
        raise MalformedZnode(path, str(error)) from error
