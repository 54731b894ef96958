"""Which broker coordinates a consumer group or transactional id. Source: FindCoordinatorRequest.java."""

from enum import IntEnum
from typing import Any, Final

from klamm.client.errors import RetriableError, retriable_or_raise
from klamm.client.versions import Request
from klamm.model.cluster import Address
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
    """The coordinator's address in a FindCoordinator response. Raises RetriableError, RequestRefused."""
    found = next((c for c in answer.coordinators if c.key == key), answer)
    if found.error_code:
        raise RetriableError(retriable_or_raise(f"coordinator of {key}", found.error_code))
    return Address(found.host, found.port)
