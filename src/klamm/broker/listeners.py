"""The ports of a node, and the addresses it advertises for them."""

from klamm.broker.lifecycle import CannotStart
from klamm.config.node_config import NodeConfig
from klamm.model.brokers import Broker, Endpoint
from klamm.model.ids import BrokerId
from klamm.net.server import Server
from klamm.runtime.network import Network


class BoundListeners:
    """A part of a node: takes the ports early, so that nobody else gets them while the logs are loaded.

    The server lets clients in much later.
    """

    def __init__(self, server: Server, config: NodeConfig, network: Network) -> None:
        self._server = server
        self._config = config
        self._network = network
        self._ports: dict[str, int] = {}

    async def start(self) -> None:
        """Raises CannotStart where a port cannot be bound."""
        for endpoint in self._config.endpoints:
            try:
                self._ports[endpoint.listener] = await self._server.bind(
                    endpoint.listener, endpoint.host, endpoint.port, self._config.socket_listen_backlog_size
                )
            except OSError as error:
                raise cannot_bind(endpoint.host, endpoint.port, error, "listeners", self._config.source) from error

    async def close(self) -> None:
        await self._server.close()

    def advertised_broker(self, broker_id: BrokerId, config: NodeConfig) -> Broker:
        """As it is registered. A listener that was added while the node runs is bound and advertised from its next
        start on."""
        advertised = tuple(
            Endpoint(
                e.listener,
                e.security_protocol,
                e.host or self._network.host_name(),
                e.port or self._ports[e.listener],
            )
            for e in config.advertised_endpoints
            if e.listener in self._ports
        )
        return Broker(broker_id, advertised, config.broker_rack)


def cannot_bind(host: str, port: int, error: OSError, key: str, source: str) -> CannotStart:
    reason = error.strerror or str(error)
    return CannotStart(
        f"cannot bind {host}:{port} ({reason}). Stop the process that uses the port, or change {key} in {source}"
    )
