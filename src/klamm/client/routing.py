"""Which broker gets a request: any broker, the controller, a leader, a coordinator.

Source: KafkaAdminClient.java, FindCoordinatorRequest.java.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, Final

from klamm.client.backoff import Backoff
from klamm.client.cluster import ClusterMetadata
from klamm.client.errors import ConnectionLost, NotConnected, RetriableError, code_name, retriable_or_raise
from klamm.client.steps import Ask, Steps, Wait
from klamm.client.versions import Request
from klamm.model.cluster import Address
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import NO_BROKER
from klamm.wire.api import ApiKey
from klamm.wire.messages import FindCoordinatorRequest

_SEVERAL_KEYS: Final = 4


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


def find_coordinator_request(kind: CoordinatorType, key: str) -> Request:
    """A FindCoordinator request for one key, to any broker; brokers before 1.0 know consumer groups only."""

    def build(version: int) -> FindCoordinatorRequest:
        """Build the FindCoordinator request for this version."""
        if version >= _SEVERAL_KEYS:
            return FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))
        return FindCoordinatorRequest(key=key, key_type=kind)

    return Request(ApiKey.FIND_COORDINATOR, build, oldest=min(kind, 1))


def coordinator_of(answer: Any, key: str) -> Address:
    """The coordinator's address in a response. Raises RetriableError, RequestRefused."""
    found = next((c for c in answer.coordinators if c.key == key), answer)
    if found.error_code:
        raise RetriableError(retriable_or_raise(f"coordinator of {key}", found.error_code))
    return Address(found.host, found.port)


class Unconfirmed(KlammError):
    """A request that must not be repeated got no response: it may have been executed."""


class NoController(RetriableError):
    """The metadata names no controller now."""


def error_codes(answer: Any) -> Iterator[int]:
    """The error codes of a response: its own and those of its topics or results."""
    if (code := getattr(answer, "error_code", None)) is not None:
        yield code
    for name in ("topics", "responses", "results"):
        for item in getattr(answer, name, None) or ():
            if (code := getattr(item, "error_code", None)) is not None:
                yield code


def send_to_any(cluster: ClusterMetadata, request: Request, timeout_s: float | None = None) -> Steps[Any]:
    """Send the request to one known broker after the other until one answers.

    Raises the last ConnectionLost, with all causes.
    """
    causes: list[str] = []
    kind = ConnectionLost
    for address in cluster.addresses():
        try:
            return (yield Ask(address, request, timeout_s))
        except ConnectionLost as error:
            kind = type(error)
            causes.append(str(error))
    raise kind(
        "; ".join(causes) or "no broker address is known: the metadata has none, and no bootstrap server was given"
    )


def controller(cluster: ClusterMetadata) -> Steps[Address]:
    """The controller's address. Raises NoController, and RetriableError where no broker answers."""
    if cluster.controller not in cluster.brokers:
        yield from cluster.refresh(())
    if cluster.controller not in cluster.brokers:
        raise NoController("the metadata of the brokers has no controller. See klamm audit --zookeeper.")
    return cluster.brokers[cluster.controller]


def send_to_controller(
    cluster: ClusterMetadata,
    request: Request,
    backoff: Backoff,
    *,
    repeatable: bool = True,
    timeout_s: Callable[[], float | None] = lambda: None,
) -> Steps[Any]:
    """Send the request to the controller, also after a change of controller; unless `repeatable`, never send it twice.

    Raises Unreachable, Unconfirmed.
    """
    while True:
        try:
            address = yield from controller(cluster)
        except RetriableError as error:
            yield Wait(backoff.next_wait_s("controller", error))
            continue
        cause: KlammError
        try:
            answer = yield Ask(address, request, timeout_s())
        except ConnectionLost as error:
            if not repeatable and not isinstance(error, NotConnected):
                raise Unconfirmed(str(error)) from error
            cause = error
        else:
            if ErrorCode.NOT_CONTROLLER not in error_codes(answer):
                return answer
            cause = RetriableError(f"{address} is not the controller any more ({ErrorCode.NOT_CONTROLLER.name})")
        cluster.controller = NO_BROKER
        yield Wait(backoff.next_wait_s("controller", cause))


def coordinator(cluster: ClusterMetadata, kind: CoordinatorType, key: str) -> Steps[Address]:
    """The address of a group's or transaction's coordinator. Raises ConnectionLost, RetriableError, RequestRefused."""
    answer = yield from send_to_any(cluster, find_coordinator_request(kind, key))
    return coordinator_of(answer, key)


_NAMES: Final = {CoordinatorType.GROUP: "group", CoordinatorType.TRANSACTION: "transactional id"}
_NOT_COORDINATING: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class CoordinatorRoute:
    """The way to the coordinator of one group or transactional id; it is looked up again when it moves."""

    def __init__(self, cluster: ClusterMetadata, kind: CoordinatorType, key: str) -> None:
        self.key = key
        self.what = f"{_NAMES[kind]} {key}"
        self._cluster = cluster
        self._kind = kind
        self._address: Address | None = None

    def ask(
        self,
        request: Request,
        error_of: Callable[[Any], int],
        backoff: Backoff,
        timeout_s: Callable[[], float | None] = lambda: None,
    ) -> Steps[Any]:
        """Send a request to the coordinator, and follow it when it moves; return the response.

        `error_of` returns the error code of a response that says whether the broker coordinates. Raises Unreachable,
        RequestRefused.
        """
        while True:
            try:
                return (yield from self._ask_once(request, error_of, timeout_s()))
            except (ConnectionLost, RetriableError) as error:
                self._address = None
                yield Wait(backoff.next_wait_s(f"the coordinator of the {self.what} does not answer", error))

    def _ask_once(self, request: Request, error_of: Callable[[Any], int], timeout_s: float | None) -> Steps[Any]:
        """Send the request once. Raises ConnectionLost, and RetriableError where the broker does not coordinate."""
        if self._address is None:
            self._address = yield from coordinator(self._cluster, self._kind, self.key)
        answer = yield Ask(self._address, request, timeout_s)
        if error_of(answer) in _NOT_COORDINATING:
            raise RetriableError(
                f"{self._address} does not coordinate the {self.what} now ({code_name(error_of(answer))})"
            )
        return answer
