"""Batches that are checked against their checksums while their bytes come in pieces."""

import random
from collections.abc import Callable

import pytest

from klamm.log.repair.batch_reader import StreamedCheck
from klamm.wire.compression import Codec
from klamm.wire.records import NewRecord, batches, build_batch
from klamm.wire.records.legacy import Message, encode_messages

MESSAGES = [Message(n, -1, b"k", bytes([n]) * 40 * n) for n in range(9)]
CONTENTS: dict[str, Callable[[], bytes]] = {
    "format 2": lambda: b"".join(
        build_batch([NewRecord(bytes([n]) * 50 * n)] * n, base_offset=10 * n) for n in range(1, 9)
    ),
    "format 0": lambda: encode_messages(MESSAGES, 0, Codec.NONE),
    "format 1": lambda: encode_messages([m._replace(timestamp=5) for m in MESSAGES], 1, Codec.NONE),
}


def problem_of(content: bytes, dice: random.Random, longest: int) -> str | None:
    """What is found in this content if it comes in random pieces."""
    check, at = StreamedCheck(), 0
    while at < len(content):
        end = at + dice.randint(1, longest)
        if (problem := check.add(memoryview(content)[at:end])) is not None:
            return problem
        at = end
    return None


@pytest.mark.parametrize("longest", [1, 20, 300, 100_000])
@pytest.mark.parametrize("name", CONTENTS)
def test_a_streamed_check_finds_each_flipped_bit_that_a_checksum_covers_and_no_other(name: str, longest: int) -> None:
    content, dice = CONTENTS[name](), random.Random(1)
    assert problem_of(content, dice, longest) is None
    assert problem_of(content[:-5], dice, longest) is None, "the last batch is cut off"
    covered_from = 21 if name == "format 2" else 17  # a flipped bit of the magic makes another format of it
    for header in batches(content):
        flipped = bytearray(content)
        flipped[dice.randrange(header.position + covered_from, header.position + header.size)] ^= 1 << dice.randrange(8)
        assert problem_of(bytes(flipped), dice, longest) == (
            f"the CRC of the batch at offset {header.base_offset} does not match its bytes"
        )


@pytest.mark.parametrize(("at", "value", "text"), [(8, b"\xff", "its length is"), (16, b"\x07", "its magic is 7")])
def test_a_streamed_check_finds_a_header_that_no_batch_has(at: int, value: bytes, text: str) -> None:
    content = bytearray(build_batch([NewRecord(b"a")]))
    content[at : at + 1] = value

    assert text in (problem_of(bytes(content), random.Random(1), 10) or "")
