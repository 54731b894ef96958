"""Brokers, versions and retries of the commands' client, and its errors."""

import asyncio
from collections.abc import Mapping

import pytest
from tests.unit.cli.admin.scripted_brokers import Brokers, run

from klamm.cli.admin.client import Admin, BrokerNotAlive, CannotAsk, parse_addresses
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode, UsageError
from klamm.model.ids import BrokerId
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
)

NO_TOPICS = CreateTopicsRequest()


def offer_create_topics(brokers: Brokers) -> None:
    """Let only the controller create topics: other brokers answer NOT_CONTROLLER for each topic."""

    def answer(_version: int, _message: object) -> CreateTopicsResponse:
        is_controller = brokers.asked[-1][0] == f"b{brokers.controller}"
        code = ErrorCode.NONE if is_controller else ErrorCode.NOT_CONTROLLER
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code)])

    brokers.answers[ApiKey.CREATE_TOPICS] = answer


def test_the_admin_client_uses_the_highest_request_version_that_the_broker_supports() -> None:
    brokers = Brokers(1, 2, 3)
    brokers.controller = 2
    brokers.newest[ApiKey.CREATE_TOPICS] = 5
    offer_create_topics(brokers)

    run(brokers, lambda admin: admin.ask_controller(ApiKey.CREATE_TOPICS, NO_TOPICS))

    assert brokers.asked == [("b2", "CREATE_TOPICS", 5)]


def test_the_admin_client_retries_not_controller_errors_with_the_new_controller() -> None:
    brokers = Brokers(1, 2)
    offer_create_topics(brokers)

    async def work(admin: Admin) -> None:
        await admin.look()
        brokers.controller = 2  # since then
        await admin.ask_controller(ApiKey.CREATE_TOPICS, NO_TOPICS, repeatable=False)

    run(brokers, work)

    assert [host for host, _, _ in brokers.asked] == ["b1", "b2"]


def test_the_admin_client_retries_a_top_level_not_controller_error() -> None:
    brokers = Brokers(1)
    brokers.answers[ApiKey.ELECT_LEADERS] = lambda _v, _m: ElectLeadersResponse(error_code=ErrorCode.NOT_CONTROLLER)

    with pytest.raises(CannotAsk, match=r"within 5 s: .*NOT_CONTROLLER"):
        run(brokers, lambda admin: admin.ask_controller(ApiKey.ELECT_LEADERS, ElectLeadersRequest()))

    assert len(brokers.asked) > 3


def test_the_admin_client_does_not_repeat_a_request_that_may_have_taken_effect() -> None:
    brokers = Brokers(1)
    brokers.answers[ApiKey.CREATE_TOPICS] = lambda _v, _m: None

    with pytest.raises(CannotAsk, match="change may have happened"):
        run(brokers, lambda admin: admin.ask_controller(ApiKey.CREATE_TOPICS, NO_TOPICS, repeatable=False))

    assert len(brokers.asked) == 1


@pytest.mark.parametrize("failure", ["refuses the connection", "answers nothing"])
def test_the_admin_client_sends_an_unrepeatable_request_to_the_next_controller_if_the_first_was_not_reached(
    failure: str,
) -> None:
    brokers = Brokers(2, 1)
    brokers.controller = 1
    offer_create_topics(brokers)

    async def work(admin: Admin) -> None:
        await admin.look()
        brokers.down, brokers.silent = ({"b1"}, set()) if failure == "refuses the connection" else (set(), {"b1"})
        brokers.controller = 2
        await admin.ask_controller(ApiKey.CREATE_TOPICS, NO_TOPICS, repeatable=False)

    run(brokers, work, 30.0)

    assert [host for host, _, _ in brokers.asked] == ["b2"]


def test_the_admin_client_skips_a_dead_bootstrap_server() -> None:
    brokers = Brokers(1, 2)
    brokers.down = {"b1"}

    async def work(admin: Admin) -> Mapping[BrokerId, Address]:
        await admin.look()
        return admin.brokers

    assert run(brokers, work) == {2: Address("b2", 9092)}


def test_a_command_fails_and_prints_the_addresses_when_no_broker_answers_in_time() -> None:
    brokers = Brokers(1)
    brokers.down = {"b1"}

    with pytest.raises(CannotAsk, match=r"no broker answers at b1:9092 within 5 s: .*Connection refused\. Check that"):
        run(brokers, lambda admin: admin.look())


def test_a_request_to_a_dead_broker_fails_with_a_list_of_live_brokers() -> None:
    with pytest.raises(CannotAsk, match=r"broker 7 is not alive \(BROKER_NOT_AVAILABLE\). Live brokers: 1, 2"):
        run(
            Brokers(1, 2),
            lambda admin: admin.ask_broker(BrokerId(7), ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest()),
        )


def test_a_request_to_a_broker_that_stops_meanwhile_fails_once_the_broker_is_not_registered() -> None:
    brokers = Brokers(1, 2)

    async def ask_after_stop(admin: Admin) -> float:
        await admin.look()
        brokers.down = {"b2"}
        before_s = asyncio.get_running_loop().time()
        with pytest.raises(BrokerNotAlive, match="broker 2 is not alive"):
            await admin.ask_broker(BrokerId(2), ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest())
        return asyncio.get_running_loop().time() - before_s

    assert run(brokers, ask_after_stop) < 1


def test_a_request_to_a_broker_that_is_still_registered_is_repeated_until_it_accepts_connections() -> None:
    brokers = Brokers(1, 2)
    registered = brokers.metadata()
    brokers.answers[ApiKey.METADATA] = lambda _version, _message: registered
    brokers.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _version, _message: DescribeLogDirsResponse()
    brokers.down = {"b2"}

    async def ask_while_it_starts(admin: Admin) -> None:
        asyncio.get_running_loop().call_later(2, brokers.down.clear)
        await admin.ask_broker(BrokerId(2), ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest())

    run(brokers, ask_while_it_starts)


def test_an_api_that_the_broker_does_not_offer_fails_with_unsupported_version() -> None:
    brokers = Brokers(1)
    brokers.newest[ApiKey.ELECT_LEADERS] = -1

    with pytest.raises(CannotAsk, match=r"does not offer the API ElectLeaders \(UNSUPPORTED_VERSION\)"):
        run(brokers, lambda admin: admin.ask_controller(ApiKey.ELECT_LEADERS, ElectLeadersRequest()))


def test_api_versions_falls_back_to_version_0_for_an_old_broker() -> None:
    brokers = Brokers(1)
    brokers.old_api_versions = True
    brokers.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _v, _m: DescribeLogDirsResponse()

    run(brokers, lambda a: a.ask_broker(BrokerId(1), ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None)))

    assert len(brokers.asked) == 1


def test_an_admin_request_for_the_controller_fails_when_there_is_no_controller() -> None:
    brokers = Brokers(1)
    brokers.controller = -1

    with pytest.raises(CannotAsk, match="No controller was found"):
        run(brokers, lambda admin: admin.ask_controller(ApiKey.CREATE_TOPICS, NO_TOPICS))


def test_bootstrap_addresses_without_host_or_valid_port_are_rejected() -> None:
    assert parse_addresses("a:1, [::1]:2,") == [Address("a", 1), Address("::1", 2)]
    for wrong in ("a", "a:x", ":1", "a:70000", "", ","):
        with pytest.raises(UsageError, match="HOST:PORT"):
            parse_addresses(wrong)
