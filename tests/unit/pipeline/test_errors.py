"""The sentence of the cause in the long errors of Spark."""

import pytest

from klamm.model.errors import KlammError
from klamm.pipeline.errors import cause_of

PYTHON = """[PYTHON_EXCEPTION] An exception was thrown from a Python worker: Traceback (most recent call last):
  File "value_column.py", line 57, in apply
klamm.spark.value_column.BadValue: orders-0, offset 1: the value is not JSON. Correct it.
  SQLSTATE: 38000
\tat org.apache.spark"""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Exception(PYTHON), "orders-0, offset 1: the value is not JSON. Correct it."),
        (KlammError("the disk is full"), "the disk is full"),
        (Exception("[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018\nat java"),
         "[CAST_INVALID_INPUT] The value 'x' cannot be cast."),
        (ValueError(), "ValueError"),
    ],
)  # fmt: skip
def test_the_cause_of_a_failed_pipeline_is_one_sentence(error: Exception, expected: str) -> None:
    assert cause_of(error) == expected
