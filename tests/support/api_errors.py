"""Errors that the APIs of coordinators and administration answer: which API, which error, when, which tests show it.

`tests/unit/coordinator/api_errors.txt` has a section for each API and a line for each error: `error | when | tests`.
`this table` stands for `test_api_errors.py`, which asks every API in the situations that are common to all.
"""

from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parents[1] / "unit" / "coordinator" / "api_errors.txt"
THIS_TABLE = "this table"


class ApiError(NamedTuple):
    api: str
    error: str
    when: str
    tests: tuple[str, ...]
    """`file::name`, as in `kafka_cases.py`; or THIS_TABLE."""


def read_api_errors() -> list[ApiError]:
    """All lines of the table."""
    found = []
    api = ""
    for line in FILE.read_text().splitlines():
        if line.startswith("["):
            api = line.strip("[]")
        elif line:
            error, when, tests = line.split(" | ")
            found.append(ApiError(api, error, when, tuple(tests.split(", "))))
    return found


def as_markdown() -> str:
    """`docs/coordinator-errors.md`."""
    lines = [
        "# Errors of groups, transactions and administration",
        "",
        "What the APIs of the group coordinator, the transaction coordinator and administration answer, and when,",
        "drawn from `tests/unit/coordinator/api_errors.txt`, which names a test for each line. The codes are Kafka's.",
        "Errors of authorization are missing, because klamm has no authorization yet.",
        "",
        "Besides, every API that names a group or a transactional id answers COORDINATOR_LOAD_IN_PROGRESS while its",
        "partition is being loaded, NOT_COORDINATOR at another broker, and COORDINATOR_NOT_AVAILABLE while the broker",
        "stops. As in Kafka, a Heartbeat during the load is accepted, and a SyncGroup answers REBALANCE_IN_PROGRESS.",
        "OffsetFetch, and an EndTxn or AddPartitionsToTxn that comes again, answer NOT_COORDINATOR also where the",
        "broker cannot confirm that it still leads the partition: see decision",
        "[31](decisions/0031-coordinators-that-were-replaced.md).",
        "",
        "| API | error | when |",
        "|---|---|---|",
    ]
    rows = read_api_errors()
    for number, row in enumerate(rows):
        is_first = number == 0 or rows[number - 1].api != row.api
        lines.append(f"| {row.api if is_first else ''} | {row.error} | {row.when} |")
    return "\n".join([*lines, ""])
