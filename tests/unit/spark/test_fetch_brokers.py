"""Brokers that are old, frozen or broken, and answers that are damaged."""

from typing import Any

import pytest
from tests.unit.spark.fetching import ORDERS, SMALL_FETCHES, orders, world_of_orders
from tests.unit.spark.scripts import log, offsets_read, scripted

from klamm.client.errors import Unreachable, UnsupportedVersion
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import FetchRequest
from klamm.wire.vectors.batches import CorruptBatch


class TestBrokers:
    def test_a_spark_read_from_an_old_broker_uses_request_versions_that_the_broker_supports(self) -> None:
        world = world_of_orders()
        world.cluster.offered = {
            ApiKey.FETCH: (0, 4),
            ApiKey.LIST_OFFSETS: (0, 1),
            ApiKey.METADATA: (0, 4),
            ApiKey.API_VERSIONS: (0, 0),
        }

        assert offsets_read(world, orders(0, 100)) == list(range(100))

    def test_a_broker_without_a_common_api_version_fails_the_spark_read_at_once(self) -> None:
        world = world_of_orders()
        world.cluster.offered[ApiKey.FETCH] = (0, 3)

        with pytest.raises(UnsupportedVersion, match="one:9092 offers Fetch in versions 0-3, klamm needs one of 4-12"):
            offsets_read(world, orders(0, 100))

    def test_the_error_names_an_address_that_is_not_a_kafka_broker(self) -> None:
        world = world_of_orders()
        world.cluster.answer = lambda broker, frame: [b"HTTP/1.1 400 Bad Request\r\n"]  # type: ignore[method-assign]

        with pytest.raises(Unreachable, match="does not speak Kafka's protocol"):
            offsets_read(world, orders(0, 100), kafkaConsumer__pollTimeoutMs="1000")

    def test_a_batch_truncated_at_the_byte_limit_is_fetched_again_with_a_higher_limit(self) -> None:
        world = scripted(orders_0=log(0, 100, per_batch=100))
        whole = world.cluster.logs[ORDERS]
        content = whole.batches[0][2]
        whole.read = lambda offset, max_bytes: content[:max_bytes]  # type: ignore[method-assign]

        assert offsets_read(world, orders(0, 100), **SMALL_FETCHES) == list(range(100))

    @pytest.mark.parametrize(("magic", "problem"), [(1, "CRC does not match"), (3, "has magic 3")])
    def test_a_wrong_message_format_fails_the_spark_read_with_partition_and_offset(
        self, magic: int, problem: str
    ) -> None:
        world = world_of_orders()
        first, last, content = world.cluster.logs[ORDERS].batches[0]
        world.cluster.logs[ORDERS].batches[0] = (first, last, content[:16] + bytes([magic]) + content[17:])

        with pytest.raises(
            CorruptBatch, match=f"orders-0: the answer to a fetch from offset 0 cannot be decoded: .* {problem}"
        ):
            offsets_read(world, orders(0, 100))

    def test_a_response_with_a_wrong_correlation_id_is_retried_until_the_read_timeout(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = world_of_orders()
        answer = world.cluster.answer

        def answer_with_another_id(broker: int, frame: bytes) -> list[bytes]:
            whole = b"".join(answer(broker, frame))
            return [whole[:4] + b"\7" + whole[5:]]

        monkeypatch.setattr(world.cluster, "answer", answer_with_another_id)

        with pytest.raises(Unreachable, match="correlation id 117440512 came, but 0 was expected"):
            offsets_read(world, orders(0, 100), kafkaConsumer__pollTimeoutMs="1000")

    def test_an_unreadable_fetch_response_is_retried_until_the_read_timeout(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = world_of_orders()
        answer = world.cluster.answer

        def answer_cut_short(broker: int, frame: bytes) -> list[bytes]:
            return [(8).to_bytes(4) + b"".join(answer(broker, frame))[4:12]]

        monkeypatch.setattr(world.cluster, "answer", answer_cut_short)

        with pytest.raises(Unreachable, match="cannot decode the response to API_VERSIONS v3"):
            offsets_read(world, orders(0, 100), kafkaConsumer__pollTimeoutMs="1000")

    def test_a_fetch_response_for_another_partition_is_retried(self) -> None:
        world = world_of_orders()
        world.cluster.logs[TopicPartition("orders", 1)] = log(0, 100)
        asked = world.cluster._fetch

        def confuse(broker: int, request: FetchRequest) -> Any:
            answer = asked(broker, request)
            if len(world.cluster.fetched_from) == 1:
                answer.responses[0].partitions[0].partition_index = 1
            return answer

        world.cluster._fetch = confuse  # type: ignore[method-assign]

        assert offsets_read(world, orders(0, 100)) == list(range(100))

    def test_a_broker_that_did_not_answer_is_the_last_to_be_asked_for_metadata(self) -> None:
        world = world_of_orders()
        world.cluster.logs[ORDERS].leader = 2
        frozen: list[int] = []

        def freeze(broker: int, request: Any) -> None:
            if broker == 1:
                frozen.append(broker)
                world.sleep(30)
                raise TimeoutError("timed out")

        world.cluster.on_request = freeze
        world.cluster.errors[ORDERS] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 5

        assert offsets_read(world, orders(0, 100)) == list(range(100))
        assert len(frozen) == 1

    def test_a_batch_larger_than_the_byte_limit_of_a_fetch_is_read(self) -> None:
        world = scripted(orders_0=log(0, 100, per_batch=100))

        assert offsets_read(world, orders(0, 100), kafka__max__partition__fetch__bytes="1") == list(range(100))

    def test_a_wrong_batch_checksum_fails_the_spark_read_with_partition_and_offsets(self) -> None:
        world = world_of_orders()
        first, last, content = world.cluster.logs[ORDERS].batches[3]
        world.cluster.logs[ORDERS].batches[3] = (first, last, content[:-1] + b"!")

        with pytest.raises(
            CorruptBatch, match=r"orders-0: the batches at offsets 30 to 39 cannot be decoded: .* checksum"
        ):
            offsets_read(world, orders(0, 100), **SMALL_FETCHES)

    def test_a_broker_that_returns_only_earlier_offsets_fails_the_spark_read(self) -> None:
        world = world_of_orders()
        log_ = world.cluster.logs[ORDERS]
        log_.read = lambda offset, max_bytes: log_.batches[0][2]  # type: ignore[method-assign]

        with pytest.raises(
            CorruptBatch, match="orders-0: the answer to a fetch from offset 10 ends before it, at offset 9"
        ):
            offsets_read(world, orders(0, 100))
