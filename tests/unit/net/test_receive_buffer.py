"""Frames come out as they were sent, however the bytes were cut; memory follows what arrived."""

import contextlib
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.net.receive_buffer import SMALL_BYTES, BadFrameSize, ReceiveBuffer

LIMIT = 8 * 1024 * 1024


def with_length_prefix(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def frames_of(content: bytes, cut: int, limit: int = LIMIT) -> list[bytes]:
    buffer = ReceiveBuffer(limit)
    found: list[bytes] = []
    at = 0
    while at < len(content):
        room = buffer.writable()
        assert len(room) > 0
        part = content[at : at + min(cut, len(room))]
        room[: len(part)] = part
        buffer.received(len(part))
        del room
        at += len(part)
        while (frame := buffer.next_frame()) is not None:
            found.append(bytes(frame))
    return found


@pytest.mark.parametrize("size", range(SMALL_BYTES - 9, SMALL_BYTES + 5))
def test_only_frames_too_large_for_the_receive_buffer_reserve_request_memory(size: int) -> None:
    taken: list[int] = []
    buffer = ReceiveBuffer(LIMIT, lambda count: taken.append(count) or True)  # type: ignore[func-returns-value]
    sent = with_length_prefix(bytes(size))
    buffer.writable()[:100] = sent[:100]
    buffer.received(100)

    assert buffer.next_frame() is None

    assert taken == [size] * (size + 4 > SMALL_BYTES)


@pytest.mark.parametrize("left", range(-5, 6))
def test_the_receive_buffer_moves_a_partly_received_frame_to_its_front(left: int) -> None:
    first = b"a" * 100
    second = b"b" * (SMALL_BYTES - len(first) - 2 * 4 - left)

    assert frames_of(with_length_prefix(first) + with_length_prefix(second), 110) == [first, second]


BODIES = [b"", b"a", b"b" * 10, b"c" * 16_380, b"d" * 16_381, b"e" * 70_000, b"f", b"g" * 3_000_001, b"h" * 5]


@pytest.mark.parametrize("cut", [1, 3, 7, 1000, 16_384, 65_536, 1 << 30])
def test_request_frames_are_reassembled_from_received_chunks_of_any_size(cut: int) -> None:
    bodies = BODIES if cut >= 1000 else [*BODIES[:4], b"x" * 20_000, *BODIES[:2]]

    assert frames_of(b"".join(map(with_length_prefix, bodies)), cut) == bodies


@given(bodies=st.lists(st.binary(max_size=40_000), max_size=8), cut=st.integers(1, 50_000))
def test_random_request_frames_are_reassembled_from_chunks_of_random_size(bodies: list[bytes], cut: int) -> None:
    assert frames_of(b"".join(map(with_length_prefix, bodies)), max(cut, sum(map(len, bodies)) // 2000 + 1)) == bodies


@pytest.mark.parametrize("size", [-1, -(2**31), LIMIT + 1, 2**31 - 1, int.from_bytes(b"GET ", "big")])
def test_a_frame_size_that_is_negative_or_above_the_limit_raises_bad_frame_size(size: int) -> None:
    with pytest.raises(BadFrameSize, match=str(size)):
        frames_of(size.to_bytes(4, "big", signed=True), 4)


def test_a_request_frame_of_the_maximum_size_is_accepted() -> None:
    body = bytes(LIMIT)

    assert frames_of(with_length_prefix(body), 100_000) == [body]


def test_an_announced_frame_size_allocates_no_memory_before_its_bytes_arrive() -> None:
    huge = 1 << 30
    tracemalloc.start()
    try:
        buffer = ReceiveBuffer(huge)
        buffer.writable()[:4] = huge.to_bytes(4, "big")
        buffer.received(4)
        assert buffer.next_frame() is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 2 * 1024 * 1024
    assert len(buffer.writable()) > 0


def test_a_large_request_frame_is_returned_without_a_copy() -> None:
    size = 40_000_003
    buffer = ReceiveBuffer(size)
    buffer.writable()[:4] = size.to_bytes(4, "big")
    buffer.received(4)
    assert buffer.next_frame() is None
    tracemalloc.start()
    try:
        left = size
        while left:
            room = buffer.writable()
            count = min(left, len(room))
            room[-1] = 7
            buffer.received(count)
            left -= count
            del room
        assert buffer.has_large_frame
        frame = buffer.next_frame()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert frame is not None
    assert (len(frame), frame[-1]) == (size, 7)
    assert peak < 1.25 * size


def test_a_corrupted_byte_stream_gives_frames_or_raises_bad_frame_size() -> None:
    dice = random.Random(5)
    for _ in range(300):
        content = bytearray(b"".join(with_length_prefix(dice.randbytes(dice.randrange(200))) for _ in range(5)))
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        with contextlib.suppress(BadFrameSize):
            frames_of(bytes(content), dice.choice([1, 5, 64]), limit=4096)
