"""DescribeCluster, InitProducerId, and what is handed to the controller, in every version."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from tests.support.waiting import settle
from tests.unit.broker.cluster_state import cache, partition, request, update

from klamm.broker.handlers.control import Control
from klamm.broker.handlers.controller_apis import CONTROLLED_SHUTDOWN, ControllerApis, Envelope
from klamm.broker.handlers.describe_cluster import DESCRIBE_CLUSTER, DescribeCluster
from klamm.broker.handlers.init_producer_id import INIT_PRODUCER_ID, InitProducerId
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.producer_ids import ProducerIdBlock, ProducerIds
from klamm.controller.events import ProducerIds as GivenIds
from klamm.controller.events import ShutdownAnswer
from klamm.coordinator.requests import ProducerIdAndEpoch
from klamm.coordinator.transactions.requests import InitResult
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.net.server import CloseConnection
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AllocateProducerIdsRequest,
    ControlledShutdownRequest,
    DescribeClusterRequest,
    EnvelopeRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    UpdateMetadataResponse,
)


def test_an_envelope_request_closes_the_connection() -> None:
    with pytest.raises(CloseConnection):
        Envelope().handle(request(ApiKey.ENVELOPE, 0), EnvelopeRequest())


class TestDescribeCluster:
    @pytest.mark.parametrize("version", range(DESCRIBE_CLUSTER.max_version + 1))
    def test_every_describe_cluster_version_answers_cluster_id_controller_and_brokers(self, version: int) -> None:
        handler = DescribeCluster(cache(), "the-cluster")

        response = handler.handle(request(ApiKey.DESCRIBE_CLUSTER, version), DescribeClusterRequest())

        response.encode(version)
        assert (response.cluster_id, response.controller_id) == ("the-cluster", 1)
        assert [b.broker_id for b in response.brokers] == [1, 2, 3]

    @pytest.mark.parametrize(
        ("version", "endpoint_type", "expected"),
        [
            (1, 2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
            (1, 9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
            (0, 2, ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_describe_cluster_for_an_endpoint_type_other_than_brokers_is_refused(
        self, version: int, endpoint_type: int, expected: ErrorCode
    ) -> None:
        message = DescribeClusterRequest(endpoint_type=endpoint_type)

        response = DescribeCluster(cache(), "c").handle(request(ApiKey.DESCRIBE_CLUSTER, version), message)

        assert response.error_code == expected


class TestInitProducerId:
    async def ask(self, version: int = 5, **fields: Any) -> InitProducerIdResponse:
        async def allocate() -> ProducerIdBlock | None:
            return ProducerIdBlock(3000, 1000)

        message = InitProducerIdRequest(**{"transactional_id": None, **fields})
        handler = InitProducerId(ProducerIds(allocate), Transactions())  # type: ignore[arg-type]
        response = await handler.handle(request(ApiKey.INIT_PRODUCER_ID, version), message)
        response.encode(version)
        return response

    @pytest.mark.parametrize("version", range(INIT_PRODUCER_ID.max_version + 1))
    async def test_every_init_producer_id_version_answers_a_new_id_with_epoch_0(self, version: int) -> None:
        response = await self.ask(version)

        assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 3000, 0)

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
            ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
            ({"transactional_id": "fenced"}, ErrorCode.PRODUCER_FENCED),
            ({"transactional_id": "fenced", "version": 3}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ],
    )
    async def test_a_refused_init_producer_id_gets_the_error_code_for_its_request_version(
        self, fields: Any, expected: ErrorCode
    ) -> None:
        response = await self.ask(**fields)

        assert (response.error_code, response.producer_id) == (expected, -1)

    async def test_init_producer_id_with_a_transactional_id_is_answered_by_the_transaction_coordinator(self) -> None:
        asked = {"transaction_timeout_ms": 500, "producer_id": 7, "producer_epoch": 2}

        response = await self.ask(transactional_id="t", **asked)

        assert (response.producer_id, response.producer_epoch) == (7, 3)


class Transactions:
    async def init_producer_id(self, name: str, timeout_ms: int, expected: ProducerIdAndEpoch | None) -> InitResult:
        if name == "fenced":
            return InitResult(ErrorCode.PRODUCER_FENCED)
        assert (name, timeout_ms, expected) == ("t", 500, (7, 2))
        return InitResult(ErrorCode.NONE, 7, 3)


class Controller:
    async def controlled_shutdown(self, broker: int, broker_epoch: int) -> ShutdownAnswer:
        assert (broker, broker_epoch) == (2, 44)
        return ShutdownAnswer(ErrorCode.NONE, (TopicPartition("orders", 1),))

    async def allocate_producer_ids(self, broker: int, broker_epoch: int) -> GivenIds:
        return GivenIds(ErrorCode.NONE, 5000, 1000)


class TestForController:
    @pytest.mark.parametrize("version", range(2, CONTROLLED_SHUTDOWN.max_version + 1))
    async def test_controlled_shutdown_answers_the_partitions_that_the_broker_still_leads(self, version: int) -> None:
        handler = ControllerApis(Controller())  # type: ignore[arg-type]

        response = await handler.controlled_shutdown(
            request(ApiKey.CONTROLLED_SHUTDOWN, version), ControlledShutdownRequest(2, 44)
        )

        response.encode(version)
        assert [(p.topic_name, p.partition_index) for p in response.remaining_partitions] == [("orders", 1)]

    async def test_allocate_producer_ids_answers_start_and_length_of_the_allocated_block(self) -> None:
        handler = ControllerApis(Controller())  # type: ignore[arg-type]

        response = await handler.allocate_producer_ids(
            request(ApiKey.ALLOCATE_PRODUCER_IDS, 0), AllocateProducerIdsRequest(1, 1)
        )

        assert (response.producer_id_start, response.producer_id_len) == (5000, 1000)


class Gate:
    """Replicas that refuse what is older than controller epoch 5."""

    def check_update_metadata(self, broker_epoch: int, controller_epoch: int) -> ErrorCode:
        return ErrorCode.STALE_CONTROLLER_EPOCH if controller_epoch < 5 else ErrorCode.NONE

    def on_live_brokers_changed(self) -> None:
        pass


@pytest.mark.parametrize(("epoch", "error", "known"), [(4, 11, False), (5, 0, True)])
def test_update_metadata_of_an_older_controller_epoch_is_ignored(epoch: int, error: int, known: bool) -> None:
    empty = MetadataCache("PLAINTEXT")
    message = update({"orders": [partition(0, 1)]})
    message.controller_epoch = epoch

    response = Control(empty, Gate()).update_metadata(  # type: ignore[arg-type]
        request(ApiKey.UPDATE_METADATA, 8), message
    )

    assert isinstance(response, UpdateMetadataResponse)
    assert (response.error_code, empty.has_topic("orders")) == (error, known)


def test_update_metadata_with_an_unknown_security_protocol_is_refused_and_changes_nothing() -> None:
    empty = MetadataCache("PLAINTEXT")
    message = update({"orders": [partition(0, 1)]})
    message.controller_epoch = 5
    message.live_brokers[1].endpoints[0].security_protocol = 9

    response = Control(empty, Gate()).update_metadata(  # type: ignore[arg-type]
        request(ApiKey.UPDATE_METADATA, 8), message
    )

    assert isinstance(response, UpdateMetadataResponse)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert not empty.has_topic("orders")


def test_update_metadata_that_deletes_a_topics_last_partition_removes_the_topic() -> None:
    known = MetadataCache("PLAINTEXT")
    gone: list[str] = []
    control = Control(known, Gate(), gone.append)  # type: ignore[arg-type]
    for states in ([partition(0, 1), partition(1, 1)], [partition(0, -2)], [partition(1, -2)]):
        assert gone == []
        message = update({"orders": states})
        message.controller_epoch = 5
        control.update_metadata(request(ApiKey.UPDATE_METADATA, 8), message)

    assert gone == ["orders"]


async def test_update_metadata_is_answered_once_the_offsets_of_deleted_partitions_are_removed() -> None:
    known = MetadataCache("PLAINTEXT")
    go_on = asyncio.Event()

    async def remove() -> None:
        await go_on.wait()

    def on_deleted(partitions: Sequence[TopicPartition]) -> "asyncio.Task[None] | None":
        return asyncio.get_running_loop().create_task(remove()) if partitions else None

    control = Control(known, Gate(), on_partitions_deleted=on_deleted)  # type: ignore[arg-type]
    answers = []
    for state in (partition(0, 1), partition(0, -2)):
        message = update({"orders": [state]})
        message.controller_epoch = 5
        answers.append(control.update_metadata(request(ApiKey.UPDATE_METADATA, 8), message))

    assert isinstance(answers[0], UpdateMetadataResponse)
    assert isinstance(answers[1], Coroutine)
    waiting = asyncio.ensure_future(answers[1])
    await settle()
    assert not waiting.done()
    go_on.set()
    assert (await waiting).error_code == ErrorCode.NONE
