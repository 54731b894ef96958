"""Read one partition from beginning to end."""

import asyncio
from collections.abc import Sequence
from typing import Final

from klamm.client.asynchronous import AsyncClient, AsyncSettings
from klamm.client.backoff import Backoff
from klamm.client.cluster import TopicGone, topic_ids_of
from klamm.client.errors import RequestRefused, Unreachable, UnsupportedVersion
from klamm.client.offsets import EARLIEST, list_offsets
from klamm.client.records import FetchLimits, fetch
from klamm.client.steps import Steps, retried
from klamm.model.cluster import Address
from klamm.model.errors import KlammError
from klamm.model.ids import TopicPartition
from klamm.runtime.world import World
from klamm.wire.records import batches, records_of_any_format

_TIMEOUT_S: Final = 10.0
_LIMITS: Final = FetchLimits(max_bytes=8 * 1024 * 1024, max_wait_ms=100, min_bytes=0)


class CannotRead(KlammError):
    pass


async def read_values(world: World, bootstrap: Sequence[tuple[str, int]], partition: TopicPartition) -> list[bytes]:
    """Read the values of all records of the partition. Raises CannotRead."""
    addresses = [Address(*address) for address in bootstrap]
    async with AsyncClient(world, addresses, AsyncSettings("klamm-cli", _TIMEOUT_S)) as client:
        try:
            return await client.run(_fetch_to_end(client, partition))
        except (TopicGone, RequestRefused, Unreachable, UnsupportedVersion) as error:
            raise CannotRead(f"Cannot read the journal from {partition}: {error}") from error


def _fetch_to_end(client: AsyncClient, partition: TopicPartition) -> Steps[list[bytes]]:
    """Fetch from the log start offset until the high watermark is reached."""
    cluster = client.cluster
    backoff = Backoff(asyncio.get_running_loop().time, _TIMEOUT_S)
    topics = yield from retried("asking for metadata", lambda: cluster.refresh([partition.topic]), backoff)
    cluster.topic_ids = topic_ids_of(topics)
    offset = (yield from list_offsets(cluster, {partition: EARLIEST}, backoff))[partition]
    values: list[bytes] = []
    while True:
        backoff.restart()
        attempt = lambda o=offset: fetch(cluster, partition, o, _LIMITS)  # noqa: E731
        answer = yield from retried(f"reading offset {offset}", attempt, backoff)
        content = answer.records or b""
        for batch in batches(content):
            if not batch.is_control:
                found = [r.value for r in records_of_any_format(content, batch) if r.offset >= offset]
                values.extend(bytes(value) for value in found if value is not None)
            offset = batch.last_offset + 1
        if offset >= answer.high_watermark:
            return values
