"""Schemas in DDL: what is refused, with which words, and what is left to Spark."""

import re

import pytest

from klamm.spark.ddl import check_fields

RIGHT = [
    "id BIGINT",
    "id bigint, user string",
    "id: BIGINT NOT NULL, `a b` STRING COMMENT 'no, yes'",
    "price DECIMAL(10, 2), at TIMESTAMP_NTZ",
    "who STRUCT<name: STRING, tags: ARRAY<STRUCT<k STRING, v INT>>>, more MAP<STRING, ARRAY<INT>>",
    "took INTERVAL DAY TO SECOND, then INTERVAL YEAR",
    "text STRING COLLATE UNICODE",
    "größe INT",
]
WRONG = {
    "id BIGNT": "the field id has the type BIGNT, which does not exist; did you mean BIGINT?",
    "id uuid": "the field id has the type UUID, which does not exist; give a type of Spark SQL, for example BIGINT",
    "id": "the field id has no type; give NAME TYPE, for example id STRING",
    "id, user STRING": "the field id has no type; give NAME TYPE, for example id STRING",
    "id BIGINT,": "a name is missing at the end; give NAME TYPE, for example id BIGINT",
    "id BIGINT,, user STRING": "a name is missing before ','; give NAME TYPE, for example id BIGINT",
    "tags ARRAY": "the field tags is ARRAY without <...>; give for example ARRAY<STRING> or STRUCT<a: INT>",
    "tags ARRAY<STRNG>": "the field tags has the type STRNG, which does not exist; did you mean STRING?",
    "who STRUCT<name: STRING": "the field who has a < without >; close it",
    "more MAP<STRING>": "the field more is a MAP of one type; give MAP<STRING, TYPE>",
    "price DECIMAL(10, 2": "the field price has a ( without ); close it",
    "id BIGINT> x": "'>' is where a comma or the end is expected; correct it",
}  # fmt: skip


@pytest.mark.parametrize("text", RIGHT)
def test_a_schema_that_spark_may_understand_is_accepted(text: str) -> None:
    check_fields(text)


@pytest.mark.parametrize(("text", "message"), WRONG.items(), ids=list(WRONG))
def test_a_wrong_schema_is_refused_with_the_field_and_a_remedy(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message.partition(";")[0])) as caught:
        check_fields(text)

    assert str(caught.value) == message
