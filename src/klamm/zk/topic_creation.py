"""Creation of many topics at once: several topics in one multi, each with its config.

Kafka creates them one by one, and its controller handles an event for each (AdminZkClient.scala).
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import KlammError
from klamm.zk import znodes
from klamm.zk.admin_znodes import encode_config
from klamm.zk.errors import RequestTooLarge, ZkCode
from klamm.zk.operations import Create, Op, Set
from klamm.zk.port import ZooKeeperClient

MAX_TOPICS: Final = 200
"""Topics in one multi."""
NAMES_AT_ONCE: Final = 500
"""Names that are looked up together."""
MAX_BYTES: Final = 400_000  # under half of a server's usual packet limit
"""The size of one multi, less than half of a server's default packet limit."""


class TopicToCreate(NamedTuple):
    """A topic to create, with its assignment by partition number."""

    name: str
    assignment: Mapping[int, ReplicaAssignment]
    topic_id: uuid.UUID | None
    config: Mapping[str, str]


async def find_taken_names(client: ZooKeeperClient, names: Sequence[str]) -> dict[str, str | None]:
    """By name, why no topic of that name can be created; None where it can."""
    found: dict[str, str | None] = {}
    for start in range(0, len(names), NAMES_AT_ONCE):
        chunk = names[start : start + NAMES_AT_ONCE]
        marked = await client.exists_many([znodes.delete_topic_path(name) for name in chunk])
        there = await client.exists_many([znodes.topic_path(name) for name in chunk])
        found |= {n: _why_taken(n, m is not None, t is not None) for n, m, t in zip(chunk, marked, there, strict=True)}
    return found


def _why_taken(name: str, marked: bool, there: bool) -> str | None:
    """Why the name is taken: its topic exists, or is still being deleted (KAFKA-13175); None where it is free."""
    if marked:
        return f"Topic '{name}' is marked for deletion."
    return f"Topic '{name}' already exists." if there else None


async def write_topics(
    client: ZooKeeperClient, wanted: Sequence[TopicToCreate], refused: dict[str, KlammError]
) -> list[TopicToCreate]:
    """Create topics in multis; returns those that were refused, which the caller tries one by one.

    The config of an earlier topic of the same name is replaced. Topics with more partitions than a znode can hold are
    not tried again: their errors are put into `refused`.
    """
    configs = await client.exists_many([znodes.topic_config_path(topic.name) for topic in wanted])
    pieces = [(t, _operations_for(t, config is not None)) for t, config in zip(wanted, configs, strict=True)]
    left: list[TopicToCreate] = []
    for batch in _batches(pieces):
        try:
            left += await _write(client, batch)
        except RequestTooLarge as error:
            if len(batch) > 1:
                raise
            refused[batch[0][0].name] = error
    return left


def _operations_for(topic: TopicToCreate, has_config: bool) -> list[Op]:
    """The operations that create one topic: its config, then its topic znode."""
    config_path, config = znodes.topic_config_path(topic.name), encode_config(topic.config)
    return [
        Set(config_path, config) if has_config else Create(config_path, config),
        Create(znodes.topic_path(topic.name), znodes.encode_topic(topic.topic_id, topic.assignment)),
    ]


TopicOperations = tuple[TopicToCreate, list[Op]]


async def _write(client: ZooKeeperClient, pieces: Sequence[TopicOperations]) -> list[TopicToCreate]:
    """Create the topics in one multi. If ZooKeeper refuses one of them, repeat the multi without it.

    Returns the refused topics.
    """
    left: list[TopicToCreate] = []
    while pieces:
        answers = await client.multi([op for _, piece in pieces for op in piece])
        failed = next((i for i, answer in enumerate(answers) if answer.code is not ZkCode.OK), None)
        if failed is None:
            break
        refused = failed // len(pieces[0][1])
        left.append(pieces[refused][0])
        pieces = [*pieces[:refused], *pieces[refused + 1 :]]
    return left


def _batches(pieces: Iterable[TopicOperations]) -> Iterator[list[TopicOperations]]:
    """Group the operations of topics into multis below the size limit, never splitting a topic."""
    batch: list[TopicOperations] = []
    size = 0
    for piece in pieces:
        weight = sum(len(op.path) + len(op.data or b"") for op in piece[1] if isinstance(op, Create | Set))
        if batch and (len(batch) >= MAX_TOPICS or size + weight > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(piece)
        size += weight
    if batch:
        yield batch
