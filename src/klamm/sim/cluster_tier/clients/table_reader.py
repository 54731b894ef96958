"""A client that reads the compacted topic as a table: the last record of each key, without the keys that are deleted.

Sometimes it begins at the beginning, as after a restart, and sometimes it continues with the table that it has.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from klamm.client.asynchronous import AsyncClient
from klamm.client.records import FetchLimits
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.runtime.randomness import Rng
from klamm.sim.cluster_tier.clients.consumer import Reader
from klamm.sim.cluster_tier.keyed_records import key_of
from klamm.sim.cluster_tier.trace import ClientEvent, CorruptPoll, TableRead
from klamm.wire.records import CorruptRecords

_PAUSE_S: Final = 1.0
_MAX_BYTES: Final = (500, 2_000, 1 << 20)
_CONTINUES: Final = 0.5


class TableReader:
    """`await run()` until cancelled."""

    def __init__(
        self,
        name: str,
        client: AsyncClient,
        rng: Rng,
        partition: Callable[[], TopicPartition | None],
        tell: Callable[[ClientEvent], None],
        *,
        reads_committed: bool = False,
    ) -> None:
        self._name = name
        self._reads_committed = reads_committed
        self._reader = Reader(client)
        self._rng = rng
        self._partition = partition
        self._tell = tell
        self._table: dict[bytes, tuple[int, bytes]] = {}
        self._position = 0
        self._ended_s = 0.0

    async def run(self) -> None:
        """Read the table again and again, with random pauses, and report each read that reached the end."""
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / _PAUSE_S))
            partition = self._partition()
            if partition is None:
                continue
            try:
                await self._read_table(partition)
            except CorruptRecords as error:
                self._tell(CorruptPoll(self._name, partition, str(error)))
            except KlammError:
                self._reader.locator.forget(partition)

    async def _read_table(self, partition: TopicPartition) -> None:
        """Read up to the high watermark, from the beginning or from where the last read ended. Raises KlammError."""
        began_s = self._ended_s
        if self._position == 0 or self._rng.random() >= _CONTINUES:
            began_s, self._position, self._table = asyncio.get_running_loop().time(), 0, {}
        position, records = self._position, list[tuple[int, bytes]]()
        limits = FetchLimits(self._rng.choice(_MAX_BYTES), 0, read_committed=self._reads_committed)
        while True:
            read = await self._reader.read(partition, self._position, limits)
            if read.error:
                self._position = self._position if read.error is not ErrorCode.OFFSET_OUT_OF_RANGE else 0
                return
            records.extend(read.found.visible)
            self._table |= {key_of(name): (offset, name) for offset, name in read.found.visible}
            if read.found.next_offset <= self._position:
                break
            self._position = read.found.next_offset
        self._ended_s = asyncio.get_running_loop().time()
        self._tell(
            TableRead(
                self._name, partition, position, tuple(records), self._position, dict(self._table), began_s,
                self._ended_s,
            )
        )  # fmt: skip
