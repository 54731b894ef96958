"""The client of the commands: one deadline for all calls, and errors that say what to do.

Works with any cluster that speaks Kafka's protocol. What may be asked twice without harm is asked again, elsewhere,
when a connection is lost. Source: KafkaAdminClient.java.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from klamm.client.asynchronous import AsyncClient, AsyncSettings
from klamm.client.backoff import Backoff
from klamm.client.cluster import TopicGone
from klamm.client.errors import (
    AnswerTimedOut,
    ConnectionLost,
    ConnectionRefused,
    NoBrokerAnswers,
    RequestRefused,
    RetriableError,
    Unreachable,
    UnsupportedVersion,
)
from klamm.client.offsets import list_offsets
from klamm.client.routing import (
    CoordinatorRoute,
    CoordinatorType,
    NoController,
    Unconfirmed,
    send_to_any,
    send_to_controller,
)
from klamm.client.steps import Ask, Steps, retried
from klamm.client.versions import Build, Request
from klamm.model import cluster
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode, KlammError, UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.main_loop import run_loop
from klamm.runtime.world import World, real_world
from klamm.wire.api import ApiKey
from klamm.wire.codec import WireMessage
from klamm.wire.messages import MetadataRequest

CLIENT_ID: Final = "klamm-cli"
T = TypeVar("T")

_PAUSE_S: Final = 0.2
_MIN_LEFT_S: Final = 0.05
_ONE_BROKER_TIMEOUT_S: Final = 5.0
"""For one broker where another may answer."""


_CHECK: Final = "Check that the brokers run, and the addresses of --bootstrap-server."


class CannotAsk(KlammError):
    """No broker gives a usable answer in time."""


class NoAnswer(CannotAsk):
    """Brokers received the request and did not answer in time: the change may still happen."""


class BrokerNotAlive(CannotAsk):
    """The broker is not registered, or has stopped meanwhile."""


class Admin:
    """`async with Admin(world, bootstrap, timeout_s) as admin`. `timeout_s` limits all calls together."""

    def __init__(self, world: World, bootstrap: Sequence[Address], timeout_s: float) -> None:
        self._now_s = asyncio.get_running_loop().time
        self._timeout_s = timeout_s
        self._deadline_s = self._now_s() + timeout_s
        self._client = AsyncClient(world, bootstrap, AsyncSettings(CLIENT_ID, timeout_s))
        self._cluster = self._client.cluster

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    @property
    def brokers(self) -> Mapping[BrokerId, Address]:
        """The address of each live broker, from the last metadata."""
        return self._cluster.brokers

    @property
    def controller(self) -> BrokerId:
        """The controller's id from the last metadata; negative if there is none."""
        return self._cluster.controller

    @property
    def left_s(self) -> float:
        """The remaining seconds of the timeout; always positive."""
        return max(_MIN_LEFT_S, self._deadline_s - self._now_s())

    @property
    def left_ms(self) -> int:
        """The remaining milliseconds of the timeout, for the timeout field of a request."""
        return int(self.left_s * 1000)

    async def pause(self, seconds: float = _PAUSE_S) -> bool:
        """Sleep, and return whether there is time for another attempt."""
        if self.left_s <= seconds:
            return False
        await asyncio.sleep(seconds)
        return True

    async def ask(self, key: ApiKey, message: WireMessage | Build) -> Any:
        """Send a request to any broker, and return the first response. Raises CannotAsk."""
        timeout_s = _ONE_BROKER_TIMEOUT_S

        def attempt_at_any_broker() -> Steps[Any]:
            """Send the request to one broker after the other until one answers; each attempt doubles the timeout."""
            nonlocal timeout_s
            steps = send_to_any(self._cluster, Request(key, message), min(timeout_s, self.left_s))
            timeout_s *= 2  # a large answer may take its time
            return steps

        return await self._run_with_retries(
            attempt_at_any_broker, f"no broker answers at {', '.join(map(str, self._cluster.bootstrap))}"
        )

    async def ask_broker(
        self, broker: BrokerId, key: ApiKey, message: WireMessage | Build, *, awaits_start: bool = True
    ) -> Any:
        """Send a request to this broker, and return its response. Raises CannotAsk, BrokerNotAlive.

        A registered broker that refuses connections may be starting: `awaits_start` retries until it accepts one.
        """
        is_repeated = False

        def attempt_at_broker() -> Steps[Any]:
            """Send the request to the broker once. Raises BrokerNotAlive where the metadata does not have the broker.

            It is read again after a failed attempt, because the broker may have stopped.
            """
            nonlocal is_repeated
            if is_repeated or broker not in self.brokers:
                yield from self._cluster.refresh(())
            is_repeated = True
            if broker not in self.brokers:
                alive = ", ".join(map(str, sorted(self.brokers)))
                raise BrokerNotAlive(
                    f"broker {broker} is not alive ({ErrorCode.BROKER_NOT_AVAILABLE.name}). Live brokers: {alive}."
                )
            try:
                return (yield Ask(self.brokers[broker], Request(key, message), self.left_s))
            except ConnectionRefused:
                if awaits_start:
                    raise
                raise CannotAsk(
                    f"Broker {broker} refuses connections at {self.brokers[broker]}. Check that it is running."
                ) from None

        return await self._run_with_retries(attempt_at_broker, f"broker {broker} does not answer")

    async def ask_controller(self, key: ApiKey, message: WireMessage | Build, *, repeatable: bool = True) -> Any:
        """Send a request to the controller, and follow a change of the controller. Raises CannotAsk.

        A request that is not `repeatable` is not sent again if it may have taken effect.
        """
        steps = send_to_controller(
            self._cluster,
            Request(key, message),
            self._backoff(),
            repeatable=repeatable,
            timeout_s=lambda: self.left_s,
        )
        try:
            return await self._run(steps)
        except Unconfirmed as error:
            raise CannotAsk(f"{error}. The change may have happened: check before you repeat it.") from None
        except Unreachable as error:
            if isinstance(error.cause, NoController):
                raise CannotAsk(
                    f"No controller was found within {self._timeout_s:g} s. See klamm audit --zookeeper."
                ) from None
            raise CannotAsk(
                f"The command was not complete within {self._timeout_s:g} s: {error.cause}. Raise --timeout to wait "
                "longer."
            ) from None

    async def ask_coordinator(
        self,
        key: str,
        request: Request,
        error_of: Callable[[Any], int],
        kind: CoordinatorType = CoordinatorType.GROUP,
    ) -> Any:
        """Send a request to a coordinator, and follow it when it moves. Raises CannotAsk.

        `key`: a group or transactional id. `error_of` returns the error code of a response that says whether the broker
        coordinates it.
        """
        route = CoordinatorRoute(self._cluster, kind, key)
        steps = route.ask(request, error_of, self._backoff(), lambda: self.left_s)
        return await self._run_within_timeout(steps, f"the coordinator of the {route.what} does not answer")

    async def ask_leader(self, partition: TopicPartition, request: Request, error_of: Callable[[Any], int]) -> Any:
        """Send a request to the leader of a partition, and follow it when it moves. Raises CannotAsk."""

        def attempt_at_leader() -> Steps[Any]:
            """Find the leader and send it the request once. Raises RetriableError where it no longer leads."""
            try:
                address = yield from self._cluster.leader(partition)
            except TopicGone as error:
                raise CannotAsk(str(error)) from None
            answer = yield Ask(address, request, self.left_s)
            if error_of(answer) == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._cluster.forget_leader(partition)
                raise RetriableError(f"{address} does not lead {partition} now")
            return answer

        return await self._run_with_retries(attempt_at_leader, f"the leader of {partition} does not answer")

    async def list_offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset of each partition at a timestamp, or its EARLIEST or LATEST. Raises CannotAsk."""
        try:
            return await self._run(list_offsets(self._cluster, times, self._backoff()))
        except (Unreachable, RequestRefused, TopicGone) as error:
            raise CannotAsk(str(error)) from None

    async def look(self) -> None:
        """Read the live brokers and the controller from the cluster's metadata."""
        no_topics = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        self.update_brokers(await self.ask(ApiKey.METADATA, no_topics))

    def update_brokers(self, metadata: Any) -> None:
        """Replace the known brokers and controller by those of a Metadata response."""
        self._cluster.update_brokers(metadata)

    async def _run_with_retries(self, attempt: Callable[[], Steps[T]], problem: str) -> T:
        """Run the steps of `attempt`, again after a retriable error. Raises CannotAsk with `problem` at the timeout."""
        return await self._run_within_timeout(retried(problem, attempt, self._backoff()), problem)

    async def _run_within_timeout(self, steps: Steps[T], problem: str) -> T:
        """Run the steps. Raises CannotAsk with `problem` where they did not succeed before the timeout."""
        try:
            return await self._run(steps)
        except Unreachable as error:
            kind = NoAnswer if isinstance(error.cause, AnswerTimedOut) else CannotAsk
            is_lost = isinstance(error.cause, ConnectionLost | NoBrokerAnswers)
            text = f"{problem} within {self._timeout_s:g} s: {error.cause}"
            raise kind(f"{text.removesuffix('.')}. {_CHECK}" if is_lost else text) from None

    async def _run(self, steps: Steps[T]) -> T:
        """Run steps of the client; an API version that the broker does not support becomes CannotAsk."""
        try:
            return await self._client.run(steps)
        except UnsupportedVersion as error:
            raise CannotAsk(str(error)) from None

    def _backoff(self) -> Backoff:
        """The pauses between retries, until the timeout."""
        return Backoff(self._now_s, self.left_s, _PAUSE_S)


def parse_addresses(text: str, option: str = "--bootstrap-server") -> list[Address]:
    """Parse `host:port,host:port`. Raises UsageError."""
    try:
        return list(cluster.parse_addresses(text))
    except ValueError as error:
        raise UsageError(f"{option} {text!r}: {error}.") from None


def with_admin(bootstrap: str, timeout_s: float, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Run `work` in its own event loop, and close its connections at the end. Raises CannotAsk."""
    given = parse_addresses(bootstrap)

    async def run_with_client() -> T:
        """Connect, run `work`, and close the connections."""
        async with Admin(real_world(), given, timeout_s) as admin:
            return await work(admin)

    return run_loop(run_with_client())
