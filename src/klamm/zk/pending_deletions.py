"""Records of replicas that brokers have to delete and may still hold.

They are klamm's own znodes, `/klamm/pending_deletions/BROKER/TOPIC-ID`:
`{"version":1,"topic":"orders","partitions":[0,3]}`. A record is written before the topic's znodes are deleted, or
before a reassignment removes the replicas from the assignment. It is removed when the broker has deleted them. A record
may name replicas that are assigned again: these are never deleted.
"""

import uuid
from collections.abc import Collection, Container, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from klamm.model.ids import BrokerId
from klamm.model.topic_ids import id_from_text
from klamm.zk.errors import ZkCode
from klamm.zk.fenced import FencedWriter
from klamm.zk.operations import Create, Set
from klamm.zk.port import ZooKeeperClient
from klamm.zk.znodes import (
    PENDING_DELETIONS,
    Int32,
    MalformedZnode,
    broker_id_of,
    decode_json,
    encode_json,
    pending_deletion_path,
)

REMEDY: Final = "an ACL forbids it: let klamm create, read, write and delete /klamm and what is below it (setAcl)"
"""The remedy in messages about NO_AUTH."""


class PendingDeletion(NamedTuple):
    """Replicas of one topic, deleted or moved away, that one broker may still hold."""

    broker: BrokerId
    topic: str
    topic_id: uuid.UUID
    partitions: tuple[int, ...]


class _PendingDeletion(msgspec.Struct):
    topic: str
    partitions: tuple[Int32, ...]


class PendingDeletionStore:
    """Reads and fenced writes of the records."""

    def __init__(self, client: ZooKeeperClient, writer: FencedWriter) -> None:
        self._client = client
        self._writer = writer

    async def read(self) -> tuple[list[PendingDeletion], dict[str, str]]:
        """Read all records of pending replica deletions, in order of brokers.

        Also returns, by path, why some cannot be read.
        """
        [brokers] = await self._client.children_many([PENDING_DELETIONS])
        numbers = sorted(b for b in map(broker_id_of, brokers.children) if b is not None)
        listed = await self._client.children_many([f"{PENDING_DELETIONS}/{b}" for b in numbers])
        names = [(b, child) for b, answer in zip(numbers, listed, strict=True) for child in sorted(answer.children)]
        answers = {answer.path: answer.code for answer in (brokers, *listed)}
        found: list[PendingDeletion] = []
        unreadable: dict[str, str] = {}
        for read in await self._client.get_many([f"{PENDING_DELETIONS}/{b}/{child}" for b, child in names]):
            answers[read.path] = read.code
            if read.code is not ZkCode.OK:
                continue
            try:
                found.append(decode_pending_deletion(read.path, read.data))
            except MalformedZnode as error:
                unreadable[read.path] = error.reason
        return found, unreadable | _refusals(answers, "read")

    async def write(
        self, pending: Collection[PendingDeletion], written: Container[tuple[BrokerId, uuid.UUID]]
    ) -> tuple[list[PendingDeletion], dict[tuple[str, BrokerId], str]]:
        """Write records of pending replica deletions.

        One whose broker and topic id are in `written` replaces the stored one. A stored record that was never read,
        perhaps because of an ACL, keeps its partitions: both are merged. Returns the stored records, and by topic and
        broker the reasons for refused ones.
        """
        above = await self._make_parents({str(c.broker): None for c in pending})
        records = {pending_deletion_path(c.broker, c.topic_id): c for c in pending}
        there = {path for path, c in records.items() if (c.broker, c.topic_id) in written}
        codes = await self._write_records(records, there)
        lost = {path: records[path] for path, code in codes.items() if code is ZkCode.NO_NODE and path in there}
        codes |= await self._write_records(lost, ())
        unread = [path for path, code in codes.items() if code is ZkCode.NODE_EXISTS]
        refused: dict[str, str] = {}
        if unread:
            shown, refused = await self._merge_with_stored({path: records[path] for path in unread})
            records |= shown
            codes |= await self._write_records(shown, shown)
        refused = _refusals({path: code for path, code in codes.items() if path not in refused}, "written") | refused
        for path in refused:
            if codes[path] is ZkCode.NO_NODE:  # what is above it could not be made
                refused[path] = next((why for parent, why in above.items() if path.startswith(parent)), refused[path])
        return (
            [record for path, record in records.items() if path not in refused],
            {(records[path].topic, records[path].broker): why for path, why in refused.items()},
        )

    async def _write_records(self, records: Mapping[str, PendingDeletion], there: Container[str]) -> dict[str, ZkCode]:
        """Set the records in `there` and create the others; returns the error codes by path."""
        ops = [Set(path, _encode(c)) if path in there else Create(path, _encode(c)) for path, c in records.items()]
        return {op.path: result.code for op, result in zip(ops, await self._writer.write(ops), strict=True)}

    async def _merge_with_stored(
        self, records: Mapping[str, PendingDeletion]
    ) -> tuple[dict[str, PendingDeletion], dict[str, str]]:
        """The records merged with the stored ones, and the reasons for stored ones that cannot be read."""
        merged: dict[str, PendingDeletion] = {}
        answers: dict[str, ZkCode] = {}
        for read in await self._client.get_many(list(records)):
            answers[read.path] = read.code
            if read.code is not ZkCode.OK:
                continue
            record = records[read.path]
            try:
                named = decode_pending_deletion(read.path, read.data).partitions
            except MalformedZnode:
                named = ()  # journalled when the term began; it cannot be read
            merged[read.path] = record._replace(partitions=tuple(sorted({*record.partitions, *named})))
        return merged, _refusals(answers, "read")

    async def _make_parents(self, brokers: Iterable[str]) -> dict[str, str]:
        """Create the parent znodes; returns the reasons by path for those that were refused."""
        there = frozenset((await self._client.children_many([PENDING_DELETIONS]))[0].children)
        missing = [b for b in brokers if b not in there]
        if not missing:
            return {}
        made: dict[str, ZkCode] = {}
        for paths in (["/klamm", PENDING_DELETIONS], [f"{PENDING_DELETIONS}/{b}" for b in missing]):
            results = await self._writer.write([Create(path) for path in paths])
            made |= {path: result.code for path, result in zip(paths, results, strict=True)}
        return _refusals({f"{path}/": code for path, code in made.items() if code is not ZkCode.NODE_EXISTS}, "made")

    async def delete(self, names: Iterable[tuple[BrokerId, uuid.UUID]]) -> dict[str, str]:
        """Delete these pending deletion records; returns, by path, why some could not be deleted."""
        left = await self._writer.delete_all([pending_deletion_path(broker, topic_id) for broker, topic_id in names])
        return _refusals(left, "removed")


def _refusals(answers: Mapping[str, ZkCode], done: str) -> dict[str, str]:
    """The reason and remedy for each path that ZooKeeper refused; a missing znode does not count as refused."""
    fine = (ZkCode.OK, ZkCode.NO_NODE) if done == "read" else (ZkCode.OK,)
    refused = {path: code for path, code in answers.items() if code not in fine}
    return {path: _refusal_message(path.rstrip("/"), code, done) for path, code in refused.items()}


def _refusal_message(path: str, code: ZkCode, done: str) -> str:
    """The message for a pending deletion record that could not be written or removed, with the remedy."""
    why = f"{path} cannot be {done}: {code.name}"
    return f"{why}; {REMEDY}" if code is ZkCode.NO_AUTH else why


def _encode(record: PendingDeletion) -> bytes:
    """Return the JSON content of the record's znode."""
    return encode_json({"version": 1, "topic": record.topic, "partitions": record.partitions})


def decode_pending_deletion(path: str, payload: bytes | None) -> PendingDeletion:
    """The record of a pending replica deletion at this path. Raises MalformedZnode."""
    broker, _, topic_id = path.removeprefix(f"{PENDING_DELETIONS}/").partition("/")
    read = decode_json(path, payload, _PendingDeletion)
    try:
        return PendingDeletion(BrokerId(int(broker)), read.topic, id_from_text(topic_id), read.partitions)
    except ValueError as error:
        raise MalformedZnode(path, str(error)) from error
