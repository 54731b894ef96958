"""Elect partition leaders on demand. Source: LeaderElectionCommand.java."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from klamm.cli.admin.client import Admin, CannotAsk
from klamm.cli.admin.refusals import Refusal
from klamm.cli.admin.topic_selection import group_by_topic
from klamm.cli.output import ProgressLine
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.wire.api import ApiKey
from klamm.wire.messages import ElectLeadersRequest, ElectLeadersRequestTopicPartitions

_CHUNK: Final = 10_000
_UNCLEAN_SINCE: Final = 1


class ElectionType(StrEnum):
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


_NUMBERS: Final = {ElectionType.PREFERRED: 0, ElectionType.UNCLEAN: 1}


class Elected(NamedTuple):
    elected: list[TopicPartition]
    not_needed: list[TopicPartition]
    refused: list[tuple[TopicPartition, Refusal]]


async def elect(admin: Admin, kind: ElectionType, partitions: Sequence[TopicPartition] | None) -> Elected:
    """Elect leaders for these partitions, or (None) for all.

    For all, the result leaves out the partitions that needed no election.
    """
    outcome = Elected([], [], [])
    if partitions is None:
        _add_results(outcome, await _send_elect_leaders(admin, kind, None))
        return outcome
    progress = ProgressLine()
    for begin in range(0, len(partitions), _CHUNK):
        _add_results(outcome, await _send_elect_leaders(admin, kind, partitions[begin : begin + _CHUNK]))
        if len(partitions) > _CHUNK:
            progress.show(f"{min(begin + _CHUNK, len(partitions)):,} of {len(partitions):,} partitions")
    progress.clear()
    return outcome


async def _send_elect_leaders(admin: Admin, kind: ElectionType, partitions: Sequence[TopicPartition] | None) -> Any:
    """Send ElectLeaders to the controller and return the response.

    Raises CannotAsk if the whole election is rejected.
    """
    grouped = None if partitions is None else group_by_topic(partitions)

    def request(version: int) -> ElectLeadersRequest:
        """Build the ElectLeaders request for this version. Raises CannotAsk for an unclean election on old brokers."""
        if version < _UNCLEAN_SINCE and kind is ElectionType.UNCLEAN:
            raise CannotAsk(
                "These brokers are older than 2.4 and elect only preferred leaders (UNSUPPORTED_VERSION). Pass "
                "--election-type preferred, or upgrade them."
            )
        return ElectLeadersRequest(
            election_type=_NUMBERS[kind],
            topic_partitions=None
            if grouped is None
            else [ElectLeadersRequestTopicPartitions(topic, tuple(numbers)) for topic, numbers in grouped.items()],
            timeout_ms=admin.left_ms,
        )

    answer = await admin.ask_controller(ApiKey.ELECT_LEADERS, request)
    if answer.error_code:
        raise CannotAsk(str(Refusal("the election", answer.error_code, None)))
    return answer


def _add_results(outcome: Elected, answer: Any) -> None:
    """Add each partition of the response to `outcome`: as elected, as not in need of an election, or as refused."""
    for topic in answer.replica_election_results:
        for result in topic.partition_result:
            at = TopicPartition(topic.topic, result.partition_id)
            if result.error_code == ErrorCode.NONE:
                outcome.elected.append(at)
            elif result.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                outcome.not_needed.append(at)
            else:
                outcome.refused.append((at, Refusal(str(at), result.error_code, result.error_message)))
