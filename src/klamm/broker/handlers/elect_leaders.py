"""ElectLeaders: the controller elects; the response waits until this broker's metadata has the new leaders.

Source: KafkaApis.handleElectLeaders, ReplicaManager.electLeaders, DelayedElectLeader (3.9).
"""

from collections.abc import Container, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final, Protocol

from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache
from klamm.controller.decisions.plans import Refusal
from klamm.controller.events import ElectionAnswer
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.time_slices import Slices
from klamm.wire.api import ApiKey
from klamm.wire.messages import ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult

ELECT_LEADERS: Final = Offered(ApiKey.ELECT_LEADERS, 0, 2)

PREFERRED: Final = 0
UNCLEAN: Final = 1
_LATE: Final = Refusal(
    ErrorCode.REQUEST_TIMED_OUT,
    "The new leader did not appear in this broker's metadata before the timeout. Describe the topic later.",
)


class ControllerElections(Protocol):
    """What ElectLeaders needs of the controller."""

    async def elect_leaders(self, partitions: Sequence[TopicPartition], *, unclean: bool) -> ElectionAnswer:
        """Elect leaders of these partitions."""


class ElectLeaders:
    """Serves ElectLeaders."""

    def __init__(self, cache: MetadataCache, controller: ControllerElections) -> None:
        self._cache = cache
        self._controller = controller

    async def handle(self, request: Request, message: ElectLeadersRequest) -> ElectLeadersResponse:
        """Answer ElectLeaders: elect leaders for the listed partitions, or for all if the list is null.

        For all, the response leaves out the partitions that needed no election.
        """
        if message.election_type not in (PREFERRED, UNCLEAN):
            return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
        wants_all = message.topic_partitions is None
        answer = await self._controller.elect_leaders(
            await self._requested_partitions(message, request.slices), unclean=message.election_type == UNCLEAN
        )
        late = frozenset(await self._wait_for_elections(answer, message.timeout_ms))
        topics: dict[str, ReplicaElectionResult] = {}
        await request.slices.run(_describe_results(answer, late, topics, wants_all))
        return ElectLeadersResponse(replica_election_results=list(topics.values()))

    async def _requested_partitions(self, message: ElectLeadersRequest, slices: Slices) -> list[TopicPartition]:
        """The partitions of the request, each once; all in the metadata cache for null."""
        if message.topic_partitions is None:
            topics = list(self._cache.topics())  # they may change between two slices
            known = (TopicPartition(t, n) for t in topics for n in list(self._cache.partitions(t)))
            return await slices.list_of(known)
        named = ((TopicPartition(t.topic, n), None) for t in message.topic_partitions for n in t.partitions)
        return list(await slices.dict_of(named))

    async def _wait_for_elections(self, answer: ElectionAnswer, timeout_ms: int) -> list[TopicPartition]:
        """Wait until the metadata cache has the elected leaders; returns the partitions that were not seen in time.

        Once an elected leader has been seen, its partition is done, even if the leader changes afterwards.
        """
        left: dict[str, list[tuple[TopicPartition, BrokerId]]] = {}
        for key, leader in answer.leaders.items():
            left.setdefault(key.topic, []).append((key, leader))

        def all_seen(topic: str) -> bool:
            """Whether the metadata cache has all elected leaders of the topic."""
            elections = left[topic]
            while elections and self._is_led_by(*elections[-1]):
                elections.pop()
            return not elections

        late = await self._cache.wait_until({t: partial(all_seen, t) for t in left}, max(timeout_ms, 0) / 1000)
        return [key for topic in late for key, leader in left[topic] if not self._is_led_by(key, leader)]

    def _is_led_by(self, key: TopicPartition, leader: BrokerId) -> bool:
        """Whether the metadata cache has this leader."""
        state = self._cache.state(key)
        return state is not None and state.leader == leader


def _describe_results(
    answer: ElectionAnswer,
    late: Container[TopicPartition],
    topics: dict[str, ReplicaElectionResult],
    wants_all: bool,
) -> Iterator[None]:
    """Put the result of each partition into `topics`; pauses after each. The leaders of `late` were not seen in time.

    Where the request was for all partitions, those that needed no election are left out.
    """
    elected = Refusal(ErrorCode.NONE, "")
    for key in chain(answer.leaders, answer.refused):
        error, why = _LATE if key in late else answer.refused.get(key, elected)
        if not (wants_all and error is ErrorCode.ELECTION_NOT_NEEDED):
            topic = topics.setdefault(key.topic, ReplicaElectionResult(key.topic, []))
            topic.partition_result.append(PartitionResult(key.partition, error, why or None))
        yield
