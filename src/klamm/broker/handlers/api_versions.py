"""ApiVersions: APIs and versions of this node. Source: ApiVersionsRequest.java, ApiVersionManager.scala, KIP-511."""

import re
from collections.abc import Sequence
from typing import Final

from klamm.broker.dispatch import Offered, Request
from klamm.broker.features import Features
from klamm.model.errors import ErrorCode
from klamm.net.client_connection import ClientSoftware
from klamm.wire.api import ApiKey
from klamm.wire.messages import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey

API_VERSIONS: Final = Offered(ApiKey.API_VERSIONS, 0, 4)
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_WITH_SOFTWARE_NAME: Final = 3


class ApiVersions:
    """Serves ApiVersions."""

    def __init__(self, offered: Sequence[Offered], features: Features | None = None) -> None:
        """Without `features` no feature is finalized."""
        self._features = features
        self._offered = [
            ApiVersion(api_key=int(o.api_key), min_version=o.min_version, max_version=o.max_version)
            for o in sorted(offered)
        ]
        self._itself = [a for a in self._offered if a.api_key == ApiKey.API_VERSIONS]

    def handle(self, request: Request, message: ApiVersionsRequest | None) -> ApiVersionsResponse:
        """Return the supported versions; an unknown request version has no message and gets a version 0 response."""
        if message is None:
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=self._itself)
        if request.version >= _FIRST_WITH_SOFTWARE_NAME and not (
            _SOFTWARE.fullmatch(message.client_software_name) and _SOFTWARE.fullmatch(message.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if request.version >= _FIRST_WITH_SOFTWARE_NAME:
            request.connection.software = ClientSoftware(message.client_software_name, message.client_software_version)
        if self._features is None:
            return ApiVersionsResponse(api_keys=self._offered)
        return ApiVersionsResponse(
            api_keys=self._offered,
            finalized_features_epoch=self._features.epoch,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in self._features.levels.items()
            ],
        )
