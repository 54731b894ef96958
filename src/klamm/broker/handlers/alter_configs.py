"""AlterConfigs and IncrementalAlterConfigs: any broker alters topics, and each its own configs and the defaults.

Source: KafkaApis.handleAlterConfigsRequest, ConfigAdminManager.preprocess (3.9).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from klamm.broker.config_admin import Change, ConfigAdmin, Outcome, ResourceType
from klamm.broker.dispatch import Offered, Request
from klamm.broker.logger_admin import LoggerAdmin
from klamm.model.errors import ErrorCode
from klamm.runtime.time_slices import Slices
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterConfigsResponseAlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseAlterConfigsResourceResponse,
)

ALTER_CONFIGS: Final = Offered(ApiKey.ALTER_CONFIGS, 0, 2)
INCREMENTAL_ALTER_CONFIGS: Final = Offered(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1)
_REPEATED_RESOURCE: Final = Outcome(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


class AlterConfigs:
    """Serves AlterConfigs and IncrementalAlterConfigs."""

    def __init__(self, admin: ConfigAdmin, loggers: LoggerAdmin) -> None:
        self._admin = admin
        self._loggers = loggers

    async def replace(self, request: Request, message: AlterConfigsRequest) -> AlterConfigsResponse:
        """Answer AlterConfigs: replace all configs of each resource by the given ones."""
        responses = []
        slices = request.slices
        async for resource, is_repeated in slices.each(await _with_repetition(message.resources, slices)):
            outcome = _REPEATED_RESOURCE
            if not is_repeated:
                changes = await slices.list_of(Change(c.name, c.value) for c in resource.configs)
                outcome = await self._admin.replace(
                    resource.resource_type, resource.resource_name, changes, validate_only=message.validate_only
                )
            responses.append(AlterConfigsResponseAlterConfigsResourceResponse(*_result_fields(outcome, resource)))
        return AlterConfigsResponse(responses=responses)

    async def increment(
        self, request: Request, message: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        """Answer IncrementalAlterConfigs: set, delete, append to or subtract from single configs of each resource."""
        responses = []
        slices = request.slices
        async for resource, is_repeated in slices.each(await _with_repetition(message.resources, slices)):
            outcome = _REPEATED_RESOURCE
            if not is_repeated:
                configs = resource.configs
                changes = await slices.list_of(Change(c.name, c.value, c.config_operation) for c in configs)
                outcome = await self._increment(resource, changes, message.validate_only)
            responses.append(
                IncrementalAlterConfigsResponseAlterConfigsResourceResponse(*_result_fields(outcome, resource))
            )
        return IncrementalAlterConfigsResponse(responses=responses)

    async def _increment(self, resource: Any, changes: Sequence[Change], validate_only: bool) -> Outcome:
        """Alter a broker's log levels or the configs of a topic or broker."""
        kind, name = resource.resource_type, resource.resource_name
        if kind == ResourceType.BROKER_LOGGER:
            return self._loggers.increment(name, changes, validate_only=validate_only)
        return await self._admin.increment(kind, name, changes, validate_only=validate_only)


async def _with_repetition(resources: Sequence[Any], slices: Slices) -> Iterator[tuple[Any, bool]]:
    """Each resource with whether the request names it more than once."""
    counts: Counter[tuple[int, str]] = Counter()
    async for piece in slices.over(resources):
        counts.update((r.resource_type, r.resource_name) for r in piece)
    return ((r, counts[r.resource_type, r.resource_name] > 1) for r in resources)


def _result_fields(outcome: Outcome, resource: Any) -> tuple[ErrorCode, str | None, int, str]:
    """The fields of a resource's result in both responses."""
    return outcome.error, outcome.message, resource.resource_type, resource.resource_name
