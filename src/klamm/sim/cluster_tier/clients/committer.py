"""A client that commits rising offsets of one group to whoever coordinates it; at rest they are read back.

Not before: a coordinator that is cut off and does not know of its successor answers older offsets, in Kafka as well.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from klamm.client.asynchronous import AsyncClient
from klamm.client.backoff import Backoff
from klamm.client.committed_offsets import committed_of, offset_commit_request, offset_fetch_request
from klamm.client.leaders import OffsetAndEpoch, offsets_of
from klamm.client.routing import CoordinatorRoute, CoordinatorType
from klamm.client.versions import Request
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.runtime.randomness import Rng
from klamm.sim.cluster_tier.trace import ClientEvent, CommitEnded, CommittedOffsetRead

_PATIENCE_S: Final = 6.0
"""For one commit or read, with all its attempts."""
_PAUSE_S: Final = 0.5


class Committer:
    """`await run()` until cancelled. It is no member of its group, so no generation fences it: it is alone there."""

    def __init__(
        self,
        name: str,
        client: AsyncClient,
        rng: Rng,
        partition: Callable[[], TopicPartition | None],
        tell: Callable[[ClientEvent], None],
    ) -> None:
        self._group = name
        self._client = client
        self._rng = rng
        self._partition = partition
        self._tell = tell
        self._route = CoordinatorRoute(client.cluster, CoordinatorType.GROUP, name)
        self._number = 0

    async def run(self) -> None:
        """Commit the next offset of a partition again and again, with random pauses between commits."""
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / _PAUSE_S))
            partition = self._partition()
            if partition is not None:
                await self._commit(partition)

    async def _commit(self, partition: TopicPartition) -> None:
        """Commit the next offset of the partition, and report whether the commit is known to have succeeded."""
        self._number += 1
        request = offset_commit_request(self._group, {partition: OffsetAndEpoch(self._number)})
        try:
            answer = await self._ask(request, _error_of_commit)
            error = ErrorCode(_error_of_commit(answer))
        except KlammError:
            error = ErrorCode.REQUEST_TIMED_OUT
        self._tell(CommitEnded(self._group, partition, self._number, error is ErrorCode.NONE))

    async def read(self, partition: TopicPartition) -> str:
        """Read the group's committed offset and report it; returns why it cannot be read, else an empty text."""
        request = offset_fetch_request(self._group, [partition])
        try:
            answer = await self._ask(request, lambda a: a.error_code)
        except KlammError as error:
            return str(error)
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        committed = offsets_of(committed_of(answer))
        self._tell(CommittedOffsetRead(self._group, partition, committed.get(partition, -1)))
        return ""

    async def _ask(self, request: Request, error_of: Callable[[Any], int]) -> Any:
        """Send a request to the coordinator, wherever it moves. Raises KlammError."""
        backoff = Backoff(asyncio.get_running_loop().time, _PATIENCE_S)
        return await self._client.run(self._route.ask(request, error_of, backoff))


def _error_of_commit(answer: Any) -> int:
    """Return the error code of the only partition in an OffsetCommit response."""
    code: int = answer.topics[0].partitions[0].error_code
    return code
