"""ElectLeaders: the controller elects; the response waits until this broker's metadata has the new leaders.

Source: KafkaApis.handleElectLeaders, ReplicaManager.electLeaders, DelayedElectLeader (3.9).
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from klamm.broker.dispatch import Offered, Request
from klamm.broker.metadata_cache import MetadataCache
from klamm.controller.decisions.plans import Refusal
from klamm.controller.events import ElectionAnswer
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult

ELECT_LEADERS: Final = Offered(ApiKey.ELECT_LEADERS, 0, 2)

PREFERRED: Final = 0
UNCLEAN: Final = 1


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
            self._requested_partitions(message), unclean=message.election_type == UNCLEAN
        )
        refused = dict(answer.refused)
        late = Refusal(
            ErrorCode.REQUEST_TIMED_OUT,
            "The new leader did not appear in this broker's metadata before the timeout. Describe the topic later.",
        )
        refused |= dict.fromkeys(await self._wait_for_elections(answer, message.timeout_ms), late)
        topics: dict[str, ReplicaElectionResult] = {}
        for key in (*answer.leaders, *answer.refused):
            error, why = refused.get(key, Refusal(ErrorCode.NONE, ""))
            if not (wants_all and error is ErrorCode.ELECTION_NOT_NEEDED):
                topic = topics.setdefault(key.topic, ReplicaElectionResult(key.topic, []))
                topic.partition_result.append(PartitionResult(key.partition, error, why or None))
        return ElectLeadersResponse(replica_election_results=list(topics.values()))

    def _requested_partitions(self, message: ElectLeadersRequest) -> list[TopicPartition]:
        """The partitions of the request, each once; all in the metadata cache for null."""
        if message.topic_partitions is None:
            return [TopicPartition(t, n) for t in self._cache.topics() for n in self._cache.partitions(t)]
        named = [TopicPartition(t.topic, n) for t in message.topic_partitions for n in t.partitions]
        return list(dict.fromkeys(named))

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
