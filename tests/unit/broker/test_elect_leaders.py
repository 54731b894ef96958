"""ElectLeaders: what is asked of the controller, and when it is answered."""

import asyncio
from collections.abc import Sequence

from tests.unit.broker.cluster_state import cache, partition, request, update
from tests.unit.coordinator.test_large_groups import ObservedSlices

from klamm.broker.handlers.elect_leaders import ElectLeaders
from klamm.broker.metadata_cache import MetadataCache
from klamm.controller.decisions.plans import Refusal
from klamm.controller.events import ElectionAnswer
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LEADER_DURING_DELETE
from klamm.runtime.time_slices import PIECE
from klamm.wire.api import ApiKey
from klamm.wire.messages import ElectLeadersRequest, ElectLeadersRequestTopicPartitions, ElectLeadersResponse

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
NAMED = [ElectLeadersRequestTopicPartitions("a", (0, 1))]


class Controller:
    def __init__(self, answer: ElectionAnswer) -> None:
        self.answer = answer
        self.asked: list[tuple[list[TopicPartition], bool]] = []

    async def elect_leaders(self, partitions: Sequence[TopicPartition], *, unclean: bool) -> ElectionAnswer:
        self.asked.append((list(partitions), unclean))
        return self.answer


def known(leader_of_a0: int) -> MetadataCache:
    made = cache()
    made.update(update({"a": [partition(0, leader_of_a0), partition(1, 2)]}))
    return made


async def elect(metadata: MetadataCache, controller: Controller, message: ElectLeadersRequest) -> ElectLeadersResponse:
    answer: ElectLeadersResponse = await ElectLeaders(metadata, controller).handle(
        request(ApiKey.ELECT_LEADERS, 2), message
    )
    return answer


def results(answer: ElectLeadersResponse) -> dict[int, int]:
    return {p.partition_id: p.error_code for topic in answer.replica_election_results for p in topic.partition_result}


async def test_elect_leaders_returns_an_error_code_for_each_requested_partition() -> None:
    needless = Refusal(ErrorCode.ELECTION_NOT_NEEDED, "it leads already")
    controller = Controller(ElectionAnswer({A0: BrokerId(1)}, {A1: needless}))

    answer = await elect(known(1), controller, ElectLeadersRequest(0, NAMED, 1000))

    assert controller.asked == [([A0, A1], False)]
    assert results(answer) == {0: 0, 1: ErrorCode.ELECTION_NOT_NEEDED}


async def test_elect_leaders_for_all_partitions_omits_partitions_that_needed_no_election() -> None:
    needless = Refusal(ErrorCode.ELECTION_NOT_NEEDED, "")
    controller = Controller(ElectionAnswer({A0: BrokerId(1)}, {A1: needless}))

    answer = await elect(known(1), controller, ElectLeadersRequest(1, None, 1000))

    [(asked, unclean)] = controller.asked
    assert {A0, A1} < set(asked)  # and those of the cluster's other topic
    assert unclean
    assert results(answer) == {0: 0}


async def test_elect_leaders_answers_request_timed_out_if_the_metadata_lacks_the_new_leader() -> None:
    controller = Controller(ElectionAnswer({A0: BrokerId(1)}))

    answer = await elect(known(2), controller, ElectLeadersRequest(0, NAMED, 0))

    assert results(answer) == {0: ErrorCode.REQUEST_TIMED_OUT}


async def test_elect_leaders_succeeds_if_an_elected_leader_changes_again_before_the_response() -> None:
    metadata = known(1)
    controller = Controller(ElectionAnswer({A1: BrokerId(1), A0: BrokerId(1)}))
    answering = asyncio.create_task(elect(metadata, controller, ElectLeadersRequest(0, NAMED, 5_000)))
    await asyncio.sleep(0)

    metadata.update(update({"a": [partition(0, 2)]}))
    metadata.update(update({"a": [partition(1, 1)]}))

    assert results(await answering) == {0: 0, 1: 0}


async def test_elect_leaders_on_a_broker_that_is_not_controller_gets_not_controller_per_partition() -> None:
    refused = Refusal(ErrorCode.NOT_CONTROLLER, "")
    controller = Controller(ElectionAnswer(refused={A0: refused, A1: refused}))

    answer = await elect(known(1), controller, ElectLeadersRequest(0, NAMED, 1000))

    assert results(answer) == {0: ErrorCode.NOT_CONTROLLER, 1: ErrorCode.NOT_CONTROLLER}


async def test_elect_leaders_with_an_unknown_election_type_is_refused() -> None:
    controller = Controller(ElectionAnswer())

    answer = await elect(known(1), controller, ElectLeadersRequest(7, NAMED, 1000))

    assert (answer.error_code, controller.asked) == (ErrorCode.INVALID_REQUEST, [])


async def test_elect_leaders_for_all_partitions_survives_topics_that_are_deleted_between_time_slices() -> None:
    metadata = known(1)
    many = range(2 * PIECE)
    metadata.update(update({topic: [partition(n, 1) for n in many] for topic in ("b", "c")}))

    def delete_b_and_c() -> None:
        for topic in ("b", "c"):
            states = [partition(n, LEADER_DURING_DELETE) for n in metadata.partitions(topic)]
            metadata.update(update({topic: states}))

    controller = Controller(ElectionAnswer())
    asked = request(ApiKey.ELECT_LEADERS, 2)._replace(slices=ObservedSlices(delete_b_and_c))
    await ElectLeaders(metadata, controller).handle(asked, ElectLeadersRequest(0, None, 1000))

    [(requested, _)] = controller.asked
    assert requested[-len(many) :] == [TopicPartition("b", n) for n in many]
