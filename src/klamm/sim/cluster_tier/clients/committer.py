"""A client that commits rising offsets of one group to whoever coordinates it, and reads them back.

Where it may, it also deletes the offset or the whole group. It waits for each answer before it goes on.

It keeps to a coordinator for its reads as long as that one answers, whoever takes its commits meanwhile: a coordinator
that is cut off and does not know of its successor must not tell an older offset. In Kafka it does.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from klamm.client.asynchronous import AsyncClient
from klamm.client.backoff import Backoff
from klamm.client.committed_offsets import (
    committed_of,
    first_partition_error,
    offset_commit_request,
    offset_fetch_request,
)
from klamm.client.leaders import OffsetAndEpoch, offsets_of
from klamm.client.routing import CoordinatorRoute, CoordinatorType
from klamm.client.versions import Request
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import TopicPartition
from klamm.runtime.randomness import Rng
from klamm.sim.cluster_tier.trace import ClientEvent, CommitEnded, CommittedOffsetRead
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    DeleteGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

_PATIENCE_S: Final = 6.0
"""For one commit or read, with all its attempts."""
_PAUSE_S: Final = 0.5
_DELETES: Final = 0.15
"""How often the next request is a deletion."""
_READS: Final = 0.5
"""How often it reads the offset after a commit."""
_NO_OFFSET: Final = -1


class Committer:
    """`await run()` until cancelled. It is no member of its group, so no generation fences it: it is alone there."""

    def __init__(
        self,
        name: str,
        client: AsyncClient,
        rng: Rng,
        partition: Callable[[], TopicPartition | None],
        tell: Callable[[ClientEvent], None],
        deletions: Rng | None = None,
        reads: Rng | None = None,
    ) -> None:
        """`deletions` decides when it deletes the offset or the group, `reads` when it reads it; None: never."""
        self._reads = reads
        self._reading_route = CoordinatorRoute(client.cluster, CoordinatorType.GROUP, name)
        self._group = name
        self._deletions = deletions
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
            if partition is None:
                continue
            if self._deletions is not None and self._deletions.random() < _DELETES:
                await self._delete(partition, self._deletions.random() < 0.5)
            else:
                await self._commit(partition)
            if self._reads is not None and self._reads.random() < _READS:
                await self.read(partition)

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

    async def _delete(self, partition: TopicPartition, is_group: bool) -> None:
        """Delete the offset or the group, and report that; a group that does not exist stays so."""
        try:
            if is_group:
                groups = DeleteGroupsRequest(groups_names=(self._group,))
                answer = await self._ask(Request(ApiKey.DELETE_GROUPS, groups), lambda a: a.results[0].error_code)
                error = ErrorCode(answer.results[0].error_code)
            else:
                partitions = [OffsetDeleteRequestPartition(partition.partition)]
                offsets = OffsetDeleteRequest(self._group, [OffsetDeleteRequestTopic(partition.topic, partitions)])
                answer = await self._ask(Request(ApiKey.OFFSET_DELETE, offsets), lambda a: a.error_code)
                error = ErrorCode(answer.error_code or first_partition_error(answer))
        except KlammError:
            error = ErrorCode.REQUEST_TIMED_OUT
        if error is not ErrorCode.GROUP_ID_NOT_FOUND:
            self._tell(CommitEnded(self._group, partition, _NO_OFFSET, error is ErrorCode.NONE))

    async def read(self, partition: TopicPartition) -> str:
        """Read the group's committed offset and report it; returns why it cannot be read, else an empty text."""
        request = offset_fetch_request(self._group, [partition])
        try:
            answer = await self._ask(request, lambda a: a.error_code, self._reading_route)
        except KlammError as error:
            return str(error)
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        committed = offsets_of(committed_of(answer))
        self._tell(CommittedOffsetRead(self._group, partition, committed.get(partition, -1)))
        return ""

    async def _ask(
        self, request: Request, error_of: Callable[[Any], int], route: CoordinatorRoute | None = None
    ) -> Any:
        """Send a request to the coordinator, wherever it moves. Raises KlammError."""
        backoff = Backoff(asyncio.get_running_loop().time, _PATIENCE_S)
        return await self._client.run((route or self._route).ask(request, error_of, backoff))


def _error_of_commit(answer: Any) -> int:
    """Return the error code of the only partition in an OffsetCommit response."""
    code: int = answer.topics[0].partitions[0].error_code
    return code
