"""Differences of answers that are not klamm's faults, each with its reason; any other fails.

A rule gets the lines before, and the two lines that differ. What it explains is compared further on, but for the rules
of `ENDING`: from there on the groups are not the same.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from tests.differential.coordinators.script import STATIC, STOP

_NEW_GROUP: Final = re.compile(r"\{group_id=\w+ protocol_type= group_state=(?:Empty)? group_type=(?:classic)?\}(?:, )?")
_NO_GROUP: Final = "{error_code=GROUP_ID_NOT_FOUND throttle_time_ms=0 topics=[]}"
"""The response to OffsetDelete."""
_ERRORS: Final = re.compile(r"partition_index=[^{}]*error_code=(\w+)")
_NOT_SERVED: Final = {"NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"}
_ENTERS: Final = re.compile(r"\d+: (\w+) enter ")
_REFUSED_COMMIT: Final = re.compile(r"error_code=(?!NONE|UNKNOWN_TOPIC_OR_PARTITION)")


def _start_of_an_empty_transaction(before: Sequence[str], ours: str, theirs: str) -> bool:
    pattern = r"transaction_state=Empty (transaction_timeout_ms=\d+) transaction_start_time_ms=T"
    return ours == re.sub(pattern, r"transaction_state=Empty \1 transaction_start_time_ms=-1", theirs)


def _group_of_a_refused_commit(before: Sequence[str], ours: str, theirs: str) -> bool:
    refused = any(" txn_commit " in step and _REFUSED_COMMIT.search(answer) for step, answer in _pairs(before))
    if not refused:
        return False
    if (ours.strip(), theirs.strip()) == ("= Dead", "= Empty"):
        return True
    return _without_new_groups(ours) == _without_new_groups(theirs) or _NO_GROUP in ours


def _without_new_groups(line: str) -> str:
    """The answer as if groups that never had a member did not exist."""
    line = re.sub(r"(group_id=[gh]) group_state=Empty protocol_type= ", r"\1 group_state=Dead protocol_type= ", line)
    line = _NEW_GROUP.sub("", line).replace(", ]", "]")
    if " results=" in line:  # of DeleteGroups
        line = re.sub(r"(group_id=[gh]) error_code=NONE", r"\1 error_code=GROUP_ID_NOT_FOUND", line)
    return line


def _static_restart_in_a_full_group(before: Sequence[str], ours: str, theirs: str) -> bool:
    step = next((line for line in reversed(before) if not line.startswith(" ")), "")
    entered = _ENTERS.match(step)
    if entered is None or "GROUP_MAX_SIZE_REACHED" not in theirs or "GROUP_MAX_SIZE_REACHED" in ours:
        return False
    group = next((line for line in reversed(before) if line.startswith("    = ")), "")
    return f" {STATIC.get(entered[1], entered[1])}#" in group


def _closed_by_a_stop(before: Sequence[str], ours: str, theirs: str) -> bool:
    step = next((line for line in reversed(before) if not line.startswith(" ")), "")
    answers = [line.partition("> ")[2] for line in (ours, theirs)]
    ends = {"closed" if answer == "closed" else "error_code=NOT_COORDINATOR" in answer for answer in answers}
    return f"restart how={STOP!r}" in step and ends == {"closed", True}


def _error_of_an_old_offset_fetch(before: Sequence[str], ours: str, theirs: str) -> bool:
    step = next((line for line in reversed(before) if not line.startswith(" ")), "")
    return " fetch v=1 " in step and "topics=[] error_code=NONE" in theirs and set(_ERRORS.findall(ours)) <= _NOT_SERVED


def _pairs(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Each step with each answer in it."""
    found, step = [], ""
    for line in lines:
        if line.startswith(" "):
            found.append((step, line))
        else:
            step = line
    return found


RULES: Final[dict[str, Callable[[Sequence[str], str, str], bool]]] = {
    "DescribeTransactions tells the start of the transaction before, until the coordinator moves, "
    "while the producer has begun none; klamm tells none": _start_of_an_empty_transaction,
    "A TxnOffsetCommit that is refused leaves an empty group behind, until the next look for expired offsets; "
    "klamm makes none": _group_of_a_refused_commit,
    "A broker that is stopped answers requests that wait with NOT_COORDINATOR, or closes the connection first, as it "
    "happens": _closed_by_a_stop,
    "A broker that does not coordinate the group answers OffsetFetch 1, which has no field for an error of the group, "
    "with no partition at all; klamm with the error of each partition": _error_of_an_old_offset_fetch,
}


ENDING: Final[dict[str, Callable[[Sequence[str], str, str], bool]]] = {
    "A static member that restarts in a full group takes its own place again; Kafka refuses it until its session "
    "expires": _static_restart_in_a_full_group,
}


def explain(before: Sequence[str], ours: str, theirs: str) -> str | None:
    """Why the lines differ; None where no rule knows. `before` are Kafka's lines."""
    return next((reason for reason, holds in (RULES | ENDING).items() if holds(before, ours, theirs)), None)
