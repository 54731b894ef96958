"""DescribeCluster: id, controller, brokers. Source: KafkaApis.handleDescribeCluster, AuthHelper.scala (3.9)."""

from typing import Final

from klamm.broker.dispatch import Offered, Request
from klamm.broker.handlers.metadata import ALL_CLUSTER_OPERATIONS
from klamm.broker.metadata_cache import MetadataCache
from klamm.model.errors import ErrorCode
from klamm.model.ids import NO_BROKER
from klamm.wire.api import ApiKey
from klamm.wire.messages import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

DESCRIBE_CLUSTER: Final = Offered(ApiKey.DESCRIBE_CLUSTER, 0, 1)
_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_OPERATIONS_NOT_REQUESTED: Final = -(2**31)


class DescribeCluster:
    """Serves DescribeCluster."""

    def __init__(self, cache: MetadataCache, cluster_id: str) -> None:
        self._cache = cache
        self._cluster_id = cluster_id

    def handle(self, request: Request, message: DescribeClusterRequest) -> DescribeClusterResponse:
        """Answer DescribeCluster: cluster id, controller, and the live brokers on the listener of the request."""
        if message.endpoint_type != _BROKERS:
            is_known = message.endpoint_type == _CONTROLLERS
            error = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            if request.version == 0:
                error = ErrorCode.INVALID_REQUEST
            text = f"Endpoint type {message.endpoint_type} is not supported in ZooKeeper mode. Send 1 (brokers)."
            return DescribeClusterResponse(error_code=error, error_message=text)
        asked = message.include_cluster_authorized_operations
        controller = self._cache.controller_id
        return DescribeClusterResponse(
            cluster_id=self._cluster_id,
            controller_id=NO_BROKER if controller is None else controller,
            brokers=[
                DescribeClusterBroker(broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
                for broker, endpoint in self._cache.brokers_on(request.peer.listener)
            ],
            cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if asked else _OPERATIONS_NOT_REQUESTED,
        )
