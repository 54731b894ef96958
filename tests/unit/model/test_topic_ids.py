import uuid

import pytest

from klamm.model.topic_ids import id_from_text, id_to_text, new_topic_id


def test_a_topic_id_is_printed_as_22_characters_and_parsed_to_the_same_id() -> None:
    some = uuid.UUID("dd077990-9b0f-423d-955f-1918f8d2f1d2")

    assert len(id_to_text(some)) == 22
    assert id_from_text(id_to_text(some)) == some


@pytest.mark.parametrize("text", ["", "short", "x" * 25, "!" * 22])
def test_text_that_is_not_a_topic_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        id_from_text(text)


def test_a_generated_topic_id_is_no_reserved_id_and_has_no_leading_dash() -> None:
    dash = bytes([0xFB]) + bytes(15)
    good = bytes(range(16))
    draws = iter([dash, good])

    drawn = new_topic_id(lambda _count: next(draws))

    assert drawn == uuid.UUID(bytes=good, version=4)
