"""What is encoded is decoded again, by compiled and by plain code alike, in every version of every message."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.wire.generated import generate
from tests.unit.wire.strategies import by_message, class_of, instances, versions

from klamm.model.topic_ids import ZERO_ID
from klamm.wire import plain
from klamm.wire.classes import MESSAGES
from klamm.wire.codec import join_small
from klamm.wire.compile_runs import Runs
from klamm.wire.errors import UnencodableField, UnsupportedField, UnsupportedVersion
from klamm.wire.messages import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchResponsePartitionData,
    ForgottenTopic,
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    MetadataRequest,
    MetadataRequestTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from klamm.wire.schema import Message
from klamm.wire.source import EncodedElements, ShapedPack

SLOW = settings(max_examples=8, suppress_health_check=list(HealthCheck))


@by_message
def test_encoded_messages_with_default_values_decode_to_the_same_messages(message: Message) -> None:
    made = class_of(message)()

    for version in versions(message):
        assert made.decode(made.encode(version), version) == made


@by_message
@SLOW
@given(data=st.data())
def test_the_compiled_message_codec_and_the_reference_codec_give_the_same_result(
    message: Message, data: st.DataObject
) -> None:
    version = data.draw(st.sampled_from(versions(message)))
    made = data.draw(instances(message, version))
    cls = class_of(message)

    wire = made.encode(version)

    assert wire == plain.encode(message, version, made)
    assert b"".join(join_small(made.encode_pieces(version))) == wire
    assert cls.decode(b"head" + wire + b"tail", version, 4) == made
    assert plain.decode(message, version, cls.CODEC.classes, wire, 0) == made


@by_message
def test_generated_messages_of_every_version_decode_to_the_same_messages(message: Message) -> None:
    dice = random.Random(message.name)
    for version in versions(message):
        for _ in range(10):
            made = generate(message, version, dice)
            wire = made.encode(version)

            assert wire == plain.encode(message, version, made)
            assert made.decode(wire, version) == made


def partition_state(isr: tuple[int, ...]) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=1, controller_epoch=2, leader=3, leader_epoch=4, isr=isr, partition_epoch=5, replicas=isr
    )


LENGTHS = {
    "all alike": [3] * 40,
    "alike from the third": [3, 2, 3, 3, 3, 3, 3],
    "one differs": [3] * 10 + [2] + [3] * 10,
    "taking turns": [3, 2] * 10,
    "none": [0] * 10,
    "too long for a shape": [17] * 10,
    "lengths of more than a byte": [3, 126, 127, 128, 300] * 2,
}


@pytest.mark.parametrize("version", range(8))
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_partition_states_with_arrays_of_any_length_decode_to_the_same_states(lengths: list[int], version: int) -> None:
    states = [partition_state(tuple(range(n))) for n in lengths]
    topic = LeaderAndIsrTopicState("t" * 130, partition_states=states)
    request = LeaderAndIsrRequest(1, False, 2, topic_states=[topic] * 3)
    if version < 2:
        request = LeaderAndIsrRequest(1, False, 2, ungrouped_partition_states=states)

    wire = request.encode(version)

    assert wire == plain.encode(MESSAGES["LeaderAndIsrRequest"], version, request)
    assert LeaderAndIsrRequest.decode(wire, version) == request


@pytest.mark.parametrize("version", range(2, 8))
def test_elements_encoded_on_their_own_take_the_place_of_an_array_of_structs(version: int) -> None:
    states = [partition_state(tuple(range(n))) for n in (3, 2, 0, 17, 126, 127, 300)]

    encoded = LeaderAndIsrRequest.encode_elements(LeaderAndIsrPartitionState, states, version)

    taking, giving = (
        LeaderAndIsrRequest(1, topic_states=[LeaderAndIsrTopicState("t", partition_states=listed)] * 2)
        for listed in (EncodedElements(encoded), states)
    )
    assert len(encoded) == len(states)
    assert taking.encode(version) == giving.encode(version)


def test_an_element_that_cannot_be_encoded_is_named_with_its_struct() -> None:
    with pytest.raises(UnencodableField, match="LeaderAndIsrPartitionState"):
        LeaderAndIsrRequest.encode_elements(LeaderAndIsrPartitionState, [partition_state((1 << 40,))], 7)


def test_the_caches_of_array_codecs_compiled_per_length_are_bounded() -> None:
    for isr, replicas, adding in itertools.product(range(14), range(14), range(3)):
        state = LeaderAndIsrPartitionState(isr=(1,) * isr, replicas=(1,) * replicas, adding_replicas=(1,) * adding)
        request = LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState("t", partition_states=[state] * 5)])
        assert LeaderAndIsrRequest.decode(request.encode(7), 7) == request

    (runs,) = (k for k in vars_of(LeaderAndIsrRequest.CODEC.decoders[7]) if isinstance(k, Runs))
    (packs,) = (k for k in vars_of(LeaderAndIsrRequest.CODEC.encoders[7]) if isinstance(k, ShapedPack))
    assert 0 < len(runs) <= 64
    assert 0 < len(packs) <= 512


def vars_of(function: Callable[..., Any]) -> list[Any]:
    """The constants that a compiled function uses."""
    return list(function.__globals__.values())


def test_an_unknown_tagged_field_between_array_elements_is_skipped() -> None:
    state = partition_state((1, 2, 3))
    request = LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState("t", partition_states=[state] * 9)])
    wire = bytearray(request.encode(7))
    size = (len(wire) - len(LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState("t")]).encode(7))) // 9
    start = len(wire) - 2 - 4 * size  # the last four states, the tags of the topic, no live leaders, no tags
    end_of_a_state = start - 1 + size
    wire[end_of_a_state - 1 : end_of_a_state] = bytes.fromhex("01 07 02 aabb")

    assert LeaderAndIsrRequest.decode(bytes(wire), 7) == request


def test_a_message_array_given_as_a_list_is_encoded() -> None:
    given_as_list = partition_state([1, 2, 3])  # type: ignore[arg-type]

    wire = LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState("t", partition_states=[given_as_list])]).encode(7)

    assert LeaderAndIsrRequest.decode(wire, 7).topic_states[0].partition_states[0].isr == (1, 2, 3)


def test_encoding_a_fetch_response_does_not_copy_large_records() -> None:
    records = bytes(100_000)
    partition = FetchResponsePartitionData(0, records=records)
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])

    parts = join_small(response.encode_pieces(17))

    assert any(part is records for part in parts)
    assert len(parts) == 3


def test_records_at_the_end_of_an_encoded_request_are_the_last_part_uncopied() -> None:
    records = bytes(5000)
    request = ProduceRequest(topic_data=[TopicProduceData("t", [PartitionProduceData(0, records)])])

    *_, last = join_small(request.encode_pieces(8))

    assert last is records


def test_small_records_are_joined_with_neighbouring_parts_of_an_encoded_message() -> None:
    request = ProduceRequest(topic_data=[TopicProduceData("t", [PartitionProduceData(0, b"small")])])

    assert join_small(request.encode_pieces(9)) == [request.encode(9)]


def test_small_parts_of_an_encoded_message_are_joined_and_large_parts_kept_separate() -> None:
    large, huge = bytes(4096), bytes(9000)

    assert join_small([large, b"a", b"b", huge, large, b"c"]) == [large, b"ab", huge, large, b"c"]
    assert join_small([b"x" * 4095]) == [b"x" * 4095]
    assert join_small([]) == []


def test_decoded_records_are_memoryviews_of_the_received_frame() -> None:
    wire = ProduceRequest(topic_data=[TopicProduceData("t", [PartitionProduceData(0, b"abc")])]).encode(9)

    records = ProduceRequest.decode(wire, 9).topic_data[0].partition_data[0].records

    assert isinstance(records, memoryview)
    assert records.obj is wire
    assert bytes(records) == b"abc"


def test_messages_are_decoded_from_bytearray_and_memoryview() -> None:
    wire = FetchRequest(max_wait_ms=7, rack_id="a").encode(12)

    assert FetchRequest.decode(bytearray(wire), 12) == FetchRequest.decode(memoryview(wire), 12)
    assert FetchRequest.decode(memoryview(wire), 12).max_wait_ms == 7


def test_encoding_a_value_for_a_field_missing_in_the_version_raises_unsupported_field() -> None:
    with pytest.raises(UnsupportedField, match="FetchRequest v6: this version has no field forgotten_topics_data"):
        FetchRequest(forgotten_topics_data=[ForgottenTopic("t")]).encode(6)
    with pytest.raises(UnsupportedField):
        plain.encode(MESSAGES["FetchRequest"], 6, FetchRequest(forgotten_topics_data=[ForgottenTopic("t")]))


def test_encoding_drops_an_ignorable_field_missing_in_the_version() -> None:
    assert FetchRequest.decode(FetchRequest(rack_id="a").encode(10), 10) == FetchRequest()


def test_encoding_a_message_in_an_undefined_version_raises_unsupported_version() -> None:
    with pytest.raises(UnsupportedVersion, match=r"no version 18 in Kafka 3\.9; use one of 0-17"):
        FetchRequest().encode(18)
    with pytest.raises(UnsupportedVersion):
        FetchRequest.decode(b"", -1)


def test_encoding_null_in_a_non_nullable_field_raises_unencodable_field() -> None:
    broken = MetadataRequest(topics=[MetadataRequestTopic(name="a"), MetadataRequestTopic(name=None)])

    with pytest.raises(UnencodableField, match=r"MetadataRequest v9, field topics\[1\]\.name: null is not valid"):
        broken.encode(9)


def test_the_error_for_encoding_a_number_out_of_range_names_the_field() -> None:
    state = partition_state((1, 2**31))
    request = LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState("t", partition_states=[state])])

    with pytest.raises(UnencodableField, match=r"topic_states\[0\]\.partition_states\[0\]\.isr\[1\]"):
        request.encode(7)


def test_encoding_a_generator_as_an_array_raises_unencodable_field() -> None:
    state = LeaderAndIsrPartitionState(isr=(n for n in (1, 2)))  # type: ignore[arg-type]
    request = LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState("t", partition_states=[state])])

    with pytest.raises(UnencodableField, match=r"object of type 'generator' has no len\(\)"):
        request.encode(7)


@pytest.mark.parametrize("value", [-1, 256, 1.5, "1"])
def test_the_error_for_encoding_a_wrong_type_or_size_names_the_field(value: Any) -> None:
    with pytest.raises(UnencodableField, match="FetchRequest v12, field isolation_level: "):
        FetchRequest(isolation_level=value if value != -1 else -129).encode(12)


@pytest.mark.parametrize("version", [8, 9])
def test_encoding_a_string_longer_than_32767_bytes_raises_unencodable_field(version: int) -> None:
    with pytest.raises(UnencodableField, match="topics"):
        MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32768)]).encode(version)

    longest = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32767)])
    assert MetadataRequest.decode(longest.encode(version), version) == longest


def test_encoding_a_string_with_a_lone_surrogate_raises_unencodable_field() -> None:
    with pytest.raises(UnencodableField, match="rack_id"):
        FetchRequest(rack_id="\ud800").encode(12)


def test_invalid_utf_8_in_a_message_is_decoded_with_replacement_characters() -> None:
    wire = FetchRequest(rack_id="ab").encode(12).replace(b"ab", b"a\xff")

    assert FetchRequest.decode(wire, 12).rack_id == "a\ufffd"


def test_kafka_message_objects_compare_by_value_and_have_kafkas_default_values() -> None:
    one = FetchRequest(topics=[])

    assert one == FetchRequest()
    assert LeaderAndIsrLiveLeader(1, "host", 9092) == LeaderAndIsrLiveLeader(broker_id=1, host_name="host", port=9092)
    assert one.topics is not FetchRequest().topics
    assert "max_wait_ms=0" in repr(one)
    assert FetchRequest().replica_state.replica_epoch == -1
    assert FetchResponse().responses == []
    assert LeaderAndIsrTopicState().topic_id is ZERO_ID
