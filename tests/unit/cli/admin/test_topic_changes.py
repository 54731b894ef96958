"""`klamm topics delete`: brokers drop a topic from metadata before its znodes are deleted."""

from collections.abc import Iterator

import pytest
from tests.unit.cli.admin.scripted_brokers import Brokers, run

from klamm.cli.admin.client import CannotAsk
from klamm.cli.admin.topic_changes import find_deletable, wait_until_gone
from klamm.model.errors import ErrorCode
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

EXISTS = ErrorCode.TOPIC_ALREADY_EXISTS


def answer_validated_creation_with(brokers: Brokers, codes: Iterator[ErrorCode]) -> None:
    """Let the controller answer each validate-only creation with the next of these error codes."""

    def answer(_version: int, asked: CreateTopicsRequest) -> CreateTopicsResponse:
        assert asked.validate_only, "nothing may be created"
        code = next(codes)
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=t.name, error_code=code) for t in asked.topics])

    brokers.answers[ApiKey.CREATE_TOPICS] = answer


def test_topics_delete_with_wait_ends_once_the_topic_name_can_be_created_again() -> None:
    brokers = Brokers(1, 2)
    answer_validated_creation_with(brokers, iter([EXISTS, EXISTS, ErrorCode.NONE]))

    assert run(brokers, lambda admin: wait_until_gone(admin, ["a", "b"])) == {}
    assert [api for _, api, _ in brokers.asked] == ["CREATE_TOPICS"] * 3


def test_topics_delete_with_wait_goes_on_without_a_broker_that_stops_meanwhile() -> None:
    brokers = Brokers(1, 2)
    answer_validated_creation_with(brokers, iter([ErrorCode.NONE] * 2))
    everyone, one_stopped = brokers.metadata(), brokers.metadata()
    del one_stopped.brokers[1]
    answers = iter([everyone, everyone])  # for the list of brokers, and of broker 1
    brokers.answers[ApiKey.METADATA] = lambda _version, _message: next(answers, one_stopped)
    brokers.down = {"b2"}

    assert run(brokers, lambda admin: wait_until_gone(admin, ["a", "b"])) == {}


def test_topics_delete_with_wait_does_not_end_while_the_topics_znodes_exist() -> None:
    brokers = Brokers(1)
    answer_validated_creation_with(brokers, iter([EXISTS] * 100))

    with pytest.raises(CannotAsk, match=r"ZooKeeper has znodes of 1 of 1 topics \(a\)"):
        run(brokers, lambda admin: wait_until_gone(admin, ["a"]))


@pytest.mark.parametrize(
    ("code", "unconfirmed"),
    [(ErrorCode.POLICY_VIOLATION, {}), (ErrorCode.TOPIC_AUTHORIZATION_FAILED, {"a": "TOPIC_AUTHORIZATION_FAILED"})],
)
def test_topics_delete_reports_a_deletion_that_brokers_do_not_confirm_as_unconfirmed(
    code: ErrorCode, unconfirmed: dict[str, str]
) -> None:
    brokers = Brokers(1)
    answer_validated_creation_with(brokers, iter([code]))

    assert run(brokers, lambda admin: wait_until_gone(admin, ["a"])) == unconfirmed


@pytest.mark.parametrize(("code", "found"), [(EXISTS, ["known", "un.led"]), (ErrorCode.NONE, ["known"])])
def test_topics_delete_finds_a_topic_by_name_that_exists_only_in_zookeeper(code: ErrorCode, found: list[str]) -> None:
    brokers = Brokers(1)
    known = [MetadataResponseTopic(0, "known", partitions=[MetadataResponsePartition(0, 0, 1, 0, (1,), (1,))])]
    brokers.answers[ApiKey.METADATA] = lambda _v, _m: brokers.metadata(known)
    answer_validated_creation_with(brokers, iter([code]))

    assert run(brokers, lambda admin: find_deletable(admin, "known, un.led")) == found


def test_a_topic_regular_expression_does_not_match_topics_that_exist_only_in_zookeeper() -> None:
    brokers = Brokers(1)

    assert run(brokers, lambda admin: find_deletable(admin, "orders-[0-9]+")) == []
    assert brokers.asked == []
