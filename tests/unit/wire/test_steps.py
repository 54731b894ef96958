"""Codecs that work in steps give what the others give, pause often, and bound what a request makes of memory."""

import random
from collections.abc import Generator
from typing import Any, TypeVar

import pytest
from tests.unit.wire.generated import generate
from tests.unit.wire.strategies import by_message, class_of, versions

from klamm.wire.codec import free_in_steps
from klamm.wire.errors import MalformedMessage, OversizedMessage
from klamm.wire.frames import encode_response, encode_response_in_steps
from klamm.wire.messages import (
    ApiVersionsRequest,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from klamm.wire.schema import Message
from klamm.wire.source import BYTES_OF_A_STEP, MAX_TAGGED_FIELDS, STEP

T = TypeVar("T")
NO_LIMIT = 1 << 40
ELEMENTS = 10_000


def run(steps: Generator[None, None, T]) -> tuple[T, int]:
    """The result of a generator, and how often it paused."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, pauses
        pauses += 1


@by_message
def test_encoding_and_decoding_in_steps_gives_the_same_result_as_at_once(message: Message) -> None:
    dice = random.Random(message.name)
    cls = class_of(message)
    for version in versions(message):
        for _ in range(3):
            made = generate(message, version, dice)
            wire = made.encode(version)

            encoded, _ = run(made.encode_in_steps(version))
            decoded, _ = run(cls.decode_in_steps(b"head" + wire + b"tail", version, 4, NO_LIMIT))

            assert b"".join(encoded) == wire
            assert decoded == made


def topics(count: int) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=f"t-{n}") for n in range(count)]


def states(count: int) -> LeaderAndIsrRequest:
    partitions = [LeaderAndIsrPartitionState(partition_index=n, replicas=(1, 2, 3)) for n in range(count)]
    return LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState("t", partition_states=partitions)])


def numbers(count: int) -> OffsetFetchRequest:
    wanted = OffsetFetchRequestTopics("t", tuple(range(count)))
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=[wanted])])


LARGE: dict[str, tuple[Any, int]] = {
    "structs": (MetadataRequest(topics=topics(ELEMENTS)), 12),
    "structs of one shape, read in runs": (states(ELEMENTS), 7),
    "numbers": (numbers(8 * ELEMENTS), 9),
    "structs in structs": (
        CreateTopicsRequest(
            topics=[
                CreatableTopic("t", assignments=[CreatableReplicaAssignment(n, (1,)) for n in range(100)])
                for _ in range(ELEMENTS // 100)
            ]
        ),
        7,
    ),
}


@pytest.mark.parametrize(("message", "version"), LARGE.values(), ids=LARGE)
def test_decoding_in_steps_pauses_after_every_step_of_elements(message: Any, version: int) -> None:
    wire = message.encode(version)

    decoded, pauses = run(type(message).decode_in_steps(wire, version, 0, NO_LIMIT))

    assert decoded == message
    assert ELEMENTS / (2 * STEP) <= pauses <= 2 * ELEMENTS / STEP


def test_decoding_in_steps_pauses_while_long_bytes_are_copied() -> None:
    metadata = bytes(range(256)) * 4096 * 10 + b"the end"
    message = JoinGroupRequest("g", protocols=[JoinGroupRequestProtocol("range", metadata)])

    decoded, pauses = run(JoinGroupRequest.decode_in_steps(message.encode(9), 9, 0, NO_LIMIT))

    assert decoded == message
    assert pauses > len(metadata) // BYTES_OF_A_STEP


def test_encoding_in_steps_pauses_after_every_step_of_elements() -> None:
    partitions = [MetadataResponsePartition(partition_index=n, replica_nodes=(1, 2)) for n in range(ELEMENTS)]
    response = MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)])

    encoded, pauses = run(encode_response_in_steps(3, 12, 7, response))

    assert b"".join(encoded) == b"".join(encode_response(3, 12, 7, response))
    assert pauses >= ELEMENTS // STEP


@pytest.mark.parametrize(("message", "version"), LARGE.values(), ids=LARGE)
def test_a_message_with_more_elements_than_allowed_is_refused_before_they_are_created(
    message: Any, version: int
) -> None:
    with pytest.raises(OversizedMessage, match=f"more than {ELEMENTS // 2} elements"):
        run(type(message).decode_in_steps(message.encode(version), version, 0, ELEMENTS // 2))


def test_a_large_message_that_is_cut_off_is_malformed() -> None:
    wire = MetadataRequest(topics=topics(ELEMENTS)).encode(12)

    with pytest.raises(MalformedMessage, match="do not parse"):
        run(MetadataRequest.decode_in_steps(wire[:-9], 12, 0, NO_LIMIT))


@pytest.mark.parametrize("count", [MAX_TAGGED_FIELDS, MAX_TAGGED_FIELDS + 1])
def test_more_tagged_fields_than_any_message_has_are_malformed(count: int) -> None:
    fields = bytes([count & 0x7F | 0x80, count >> 7]) + b"\x63\x00" * count
    wire = ApiVersionsRequest("client", "1").encode(3)[:-1] + fields

    if count <= MAX_TAGGED_FIELDS:
        assert ApiVersionsRequest.decode(wire, 3) == ApiVersionsRequest("client", "1")
        return
    with pytest.raises(MalformedMessage, match=f"{count} tagged fields"):
        ApiVersionsRequest.decode(wire, 3)


def test_a_message_is_freed_in_steps() -> None:
    message = states(ELEMENTS)

    _, pauses = run(free_in_steps(message))

    assert pauses >= ELEMENTS // STEP
    assert message.topic_states == []


def test_freeing_a_message_leaves_the_arrays_and_structs_that_others_refer_to() -> None:
    message, other = states(ELEMENTS), MetadataRequest(topics=topics(ELEMENTS))
    (topic,), theirs = message.topic_states, other.topics

    run(free_in_steps(message))
    run(free_in_steps(other))

    assert len(topic.partition_states) == ELEMENTS
    assert theirs is not None
    assert len(theirs) == ELEMENTS
